/**
 * Starts the console: takes a key from the address, then renders.
 */
import { render } from 'preact';
import { checkSession, signInWith } from './api/sign-in.ts';
import { watchPage } from './api/stream.ts';
import { App } from './app.tsx';
import { applyPreferences } from './state/preferences.ts';
import { forgetArrived, refusal, refusedLink, session, takeFragment } from './state/session.ts';
import { listenForShortcuts } from './state/shortcuts.ts';

const ENTER_MS_MAX = 1_500;
const RETRY_MS = 3_000;

applyPreferences();
listenForShortcuts();
watchPage();
// Without a pause, the form would flash before the page of the key. A server that doesn't answer must not leave the page empty.
await Promise.race([enter(), new Promise((resolve) => setTimeout(resolve, ENTER_MS_MAX))]);
addEventListener('hashchange', () => void enter());
render(<App />, document.getElementById('app') ?? document.body);

/** Signs in with the key of the address, or checks the one that this tab has kept. */
async function enter(): Promise<void> {
  const token = takeFragment();
  if (token === undefined) return void checkSession();
  const result = await signInWith(token);
  refusedLink.value = result === 'refused' && session.value.kind !== 'visitor' ? refusal.value : undefined;
  if (result === 'later') void keepTrying(token);
  else forgetArrived();
}

/** The address has the key no longer, so it is kept here until the service answers or somebody has signed in. */
async function keepTrying(token: string): Promise<void> {
  do await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  while (session.value.kind === 'visitor' && (await signInWith(token)) === 'later');
  forgetArrived();
}
