/**
 * Finds out whose key it is: a watcher's, or the operator's token.
 */
import { refusal, type Session, session, signIn, signOut } from '../state/session.ts';
import { texts } from '../texts.ts';
import { ApiError, call } from './client.ts';
import { forgetAll } from './resource.ts';

/** The form of an API key. Everything else is tried as the admin token. */
const KEY = /^cb_live_/;

/** The newest attempt to sign in. */
let newest: object | undefined;

/**
 * Signs in, or says in `refusal` why not. `later`: the service can't check the key now. `over`: the answer is ignored, because somebody
 * has signed in or out meanwhile, or another attempt has begun.
 */
export async function signInWith(token: string): Promise<'in' | 'refused' | 'later' | 'over'> {
  refusal.value = undefined;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    refusal.value = texts.signIn.malformed;
    return 'refused';
  }
  const own = {};
  newest = own;
  const former = session.value;
  const isOver = () => newest !== own || session.value !== former;
  try {
    const next = KEY.test(token) ? await asWatcher(token) : await asOperator(token);
    if (isOver()) return 'over';
    signIn(next);
    forgetAll();
    return 'in';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (isOver()) return 'over';
    const isUnknown = error.status === 404 && !KEY.test(token);
    refusal.value = isUnknown
      ? texts.signIn.noAdmin
      : error.status === 401 && !KEY.test(token)
        ? texts.signIn.wrongToken
        : error.message;
    return error.status === 0 || error.status === 429 || error.status >= 500 ? 'later' : 'refused';
  }
}

/** Checks a key that this tab has kept, and learns the watcher's present name. */
export async function checkSession(): Promise<void> {
  const { value } = session;
  if (value.kind === 'visitor') return;
  try {
    if (value.kind === 'watcher') {
      const next = await asWatcher(value.token);
      if (session.value === value) signIn(next);
    } else await call('GET /api/admin/deployment');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if ((error.status === 401 || error.status === 404) && session.value === value) signOut(error.message);
  }
}

async function asWatcher(token: string): Promise<Session> {
  const { id, name } = await call('GET /api/notifications/watcher', {
    headers: { authorization: `Bearer ${token}` },
  });
  return { kind: 'watcher', token, watcher: { id, name } };
}

async function asOperator(token: string): Promise<Session> {
  await call('GET /api/admin/deployment', { headers: { authorization: `Bearer ${token}` } });
  return { kind: 'operator', token, watcher: undefined };
}
