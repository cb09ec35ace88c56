/**
 * Who is signed in: a watcher with an API key, the operator with the admin token, or a visitor who sees public data. The key
 * is kept only in this tab's sessionStorage.
 */
import { computed, type Signal, signal } from '@preact/signals';
import { storeOf } from './storage.ts';

type WatcherName = { id: number; name: string };
export type Session =
  | { kind: 'visitor' }
  | { kind: 'watcher'; token: string; watcher: WatcherName }
  /** Without a chosen watcher, the operator sees all of them. */
  | { kind: 'operator'; token: string; watcher: WatcherName | undefined };

const tabStore = storeOf(() => sessionStorage);
const STORED = 'chainbell.session';
/** A key from the address that has not been checked yet. */
const ARRIVED = 'chainbell.arrived';

export const session: Signal<Session> = signal(readStored());
/** Why the server refused the key that was signed in. */
export const refusal: Signal<string | undefined> = signal(undefined);
/** Why the key of a link didn't sign in, although somebody is signed in. */
export const linkProblem: Signal<string | undefined> = signal(undefined);
/** Why the key of a visitor's link isn't checked yet. It is tried again. */
export const linkWaits: Signal<string | undefined> = signal(undefined);
/** Why the server takes no requests of this session now, although it knows the key. */
export const suspension: Signal<string | undefined> = signal(undefined);

export const isOperator = computed(() => session.value.kind === 'operator');
/** Whether all watchers are shown. Their rows name the watcher. */
export const showsAll = computed(
  () => session.value.kind === 'operator' && session.value.watcher === undefined,
);
/** Changes with everything that decides which data is shown. Part of the key of each resource. */
export const scope = computed(() => {
  const { value } = session;
  return value.kind === 'visitor' ? 'visitor' : `${value.kind} ${value.token} ${value.watcher?.id ?? 'all'}`;
});

export function signIn(next: Session): void {
  session.value = next;
  refusal.value = undefined;
  linkProblem.value = undefined;
  linkWaits.value = undefined;
  suspension.value = undefined;
  forgetArrived();
  if (next.kind === 'visitor') tabStore.removeItem(STORED);
  else tabStore.setItem(STORED, JSON.stringify(next));
}

/** Forgets the key. `reason` is shown beside the sign-in form. */
export function signOut(reason?: string): void {
  signIn({ kind: 'visitor' });
  refusal.value = reason;
}

/** The watcher that is shown to the operator. */
export function chosenWatcher(): WatcherName | undefined {
  return session.value.kind === 'operator' ? session.value.watcher : undefined;
}

/** Shows one watcher to the operator, or all of them. */
export function chooseWatcher(watcher: WatcherName | undefined): void {
  const { value } = session;
  if (value.kind === 'operator') signIn({ ...value, watcher });
}

/** To an operator who sees all watchers, shows only the one whose data a link leads to. */
export function narrowTo(id: number | undefined, name: string | undefined): void {
  if (showsAll.value && id !== undefined) chooseWatcher({ id, name: name ?? String(id) });
}

/**
 * Takes the key from `#key=…` or the token from `#admin=…`, and removes the fragment from the address bar and the history
 * before anything else happens. A page that is loaded again before the key has been checked still has it.
 */
export function takeFragment(): string | undefined {
  const [, token] = /^#(?:key|admin)=(.+)$/.exec(location.hash) ?? [];
  if (token === undefined) return tabStore.getItem(ARRIVED) ?? undefined;
  history.replaceState(history.state, '', location.pathname + location.search);
  const arrived = decoded(token);
  tabStore.setItem(ARRIVED, arrived);
  return arrived;
}

/** Whether this key of the address still has to be checked: there is no newer one, and the session is as it was. */
export const hasArrived = (token: string): boolean => tabStore.getItem(ARRIVED) === token;

/** The key of the address has been checked, or is to be forgotten. */
export function forgetArrived(): void {
  tabStore.removeItem(ARRIVED);
}

function decoded(token: string): string {
  try {
    return decodeURIComponent(token);
  } catch {
    return token;
  }
}

function readStored(): Session {
  try {
    const stored: unknown = JSON.parse(tabStore.getItem(STORED) ?? 'null');
    if (isSession(stored)) return stored;
  } catch {
    // Something else has written there. It counts as signed out.
  }
  return { kind: 'visitor' };
}

function isSession(value: unknown): value is Session {
  if (typeof value !== 'object' || value === null || !('kind' in value) || !('token' in value)) return false;
  return (value.kind === 'watcher' || value.kind === 'operator') && typeof value.token === 'string';
}
