/**
 * Starts the console: takes a key from the address, then renders.
 */
import { render } from 'preact';
import { checkSession, signInWith } from './api/sign-in.ts';
import { watchPage } from './api/stream.ts';
import { App } from './app.tsx';
import { applyPreferences } from './state/preferences.ts';
import {
  forgetArrived,
  hasArrived,
  linkProblem,
  linkWaits,
  refusal,
  session,
  takeFragment,
} from './state/session.ts';
import { listenForShortcuts } from './state/shortcuts.ts';
import { texts } from './texts.ts';

const ENTER_MS_MAX = 1_500;
const RETRY_MS = 3_000;

applyPreferences();
listenForShortcuts();
watchPage();
addEventListener('hashchange', () => void enter());
// Without a pause, the form would flash before the page of the key. A server that doesn't answer must not leave the page empty.
const isLate = await Promise.race([
  enter().then(() => false),
  new Promise<boolean>((resolve) => setTimeout(() => resolve(true), ENTER_MS_MAX)),
]);
if (isLate && session.value.kind === 'visitor') linkWaits.value = texts.signIn.slow;
render(<App />, document.getElementById('app') ?? document.body);

/** Signs in with the key of the address, or checks the one that this tab has kept. */
async function enter(): Promise<void> {
  const token = takeFragment();
  if (token === undefined) return void checkSession();
  if ((await tryLink(token)) === 'later') void keepTrying(token);
}

/** Whoever is signed in stays so until the key of the link is found to be valid, and learns why it isn't. */
async function tryLink(token: string): ReturnType<typeof signInWith> {
  const result = await signInWith(token);
  if (result === 'over') return result;
  if (result !== 'later') forgetArrived();
  const isSignedIn = result !== 'in' && session.value.kind !== 'visitor';
  linkProblem.value = isSignedIn ? texts.signIn.links[result](refusal.value ?? '') : undefined;
  linkWaits.value = result === 'later' && !isSignedIn ? refusal.value : undefined;
  return result;
}

/** The address has the key no longer, so it is tried again until the service answers, somebody signs in or out, or a newer link comes. */
async function keepTrying(token: string): Promise<void> {
  do await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  while (hasArrived(token) && (await tryLink(token)) === 'later');
}
