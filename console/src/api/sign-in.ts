/**
 * Finds out whose key it is: a watcher's, or the operator's token.
 */
import { refusal, type Session, session, signIn, signOut } from '../state/session.ts';
import { texts } from '../texts.ts';
import { ApiError, call } from './client.ts';
import { forgetAll } from './resource.ts';

/** The form of an API key. Everything else is tried as the admin token. */
const KEY = /^cb_live_/;

/** Signs in, or says in `refusal` why not. */
export async function signInWith(token: string): Promise<boolean> {
  refusal.value = undefined;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    refusal.value = texts.signIn.malformed;
    return false;
  }
  try {
    signIn(KEY.test(token) ? await asWatcher(token) : await asOperator(token));
    forgetAll();
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const isUnknown = error.status === 404 && !KEY.test(token);
    refusal.value = isUnknown
      ? texts.signIn.noAdmin
      : error.status === 401 && !KEY.test(token)
        ? texts.signIn.wrongToken
        : error.message;
    return false;
  }
}

/** Checks a key that this tab has kept, and learns the watcher's present name. */
export async function checkSession(): Promise<void> {
  const { value } = session;
  if (value.kind === 'visitor') return;
  try {
    if (value.kind === 'watcher') signIn(await asWatcher(value.token));
    else await call('GET /api/admin/deployment');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401 || error.status === 404) signOut(error.message);
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
