/**
 * Signing in with an API key or the admin token, beside what is open to everyone.
 */

import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso';
import { chain } from '../api/chain.ts';
import { signInWith } from '../api/sign-in.ts';
import { Icon, type IconName } from '../parts/icon.tsx';
import { PageHead } from '../parts/page.tsx';
import { Problem } from '../parts/problem.tsx';
import { Command } from '../parts/values.tsx';
import { refusal, session } from '../state/session.ts';
import { texts } from '../texts.ts';

export function SignIn() {
  const { path, route } = useLocation();
  const [token, setToken] = useState('');
  const [isBusy, setBusy] = useState(false);
  const problem = refusal.value;
  // A watcher gets this form at the pages of the operator.
  const { value } = session;
  const watcher = value.kind === 'watcher' && path !== '/console/sign-in' ? value.watcher.name : undefined;
  const submit = async () => {
    setBusy(true);
    const outcome = await signInWith(token.trim()).finally(() => setBusy(false));
    if (outcome === 'in' && path === '/console/sign-in') route('/console');
  };
  return (
    <div class="sign-in">
      <div>
        {watcher === undefined ? (
          <PageHead title={texts.signIn.title} note={texts.signIn.note} />
        ) : (
          <PageHead title={texts.signIn.operatorTitle} note={texts.signIn.operatorNote(watcher)} />
        )}
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <div class="field">
            <label for="token">{texts.signIn.field}</label>
            <input
              id="token"
              class="input mono"
              type="password"
              value={token}
              required
              autocomplete="off"
              spellcheck={false}
              aria-invalid={problem !== undefined}
              aria-describedby="token-note"
              onInput={(event) => setToken(event.currentTarget.value)}
            />
            <div id="token-note">
              <Problem text={problem} />
              <p class="field-note">{texts.signIn.kept}</p>
            </div>
          </div>
          <button type="submit" class="button is-first" disabled={isBusy}>
            {texts.signIn.submit}
          </button>
        </form>
        {watcher === undefined && (
          <>
            <h2 class="minor">{texts.signIn.noKey}</h2>
            <p class="quiet">{texts.signIn.noKeyNote}</p>
            <div class="below">
              <Command text="npm run --silent chainbell -- keys create --watcher acme" />
            </div>
          </>
        )}
      </div>
      <OpenToEveryone />
    </div>
  );
}

function OpenToEveryone() {
  const has = chain.state.value.data?.has;
  const entries: { icon: IconName; href: string; name: string; note: string; isThere: boolean }[] = [
    {
      icon: 'market',
      href: '/console/market',
      ...texts.signIn.market,
      isThere: has === undefined || has.prices || has.pairs,
    },
    {
      icon: 'points',
      href: '/console/points',
      ...texts.signIn.points,
      isThere: has === undefined || has.points,
    },
    {
      icon: 'supply',
      href: '/console/supply',
      ...texts.signIn.supply,
      isThere: has === undefined || has.supply,
    },
    { icon: 'external', href: '/docs', ...texts.signIn.reference, isThere: true },
  ];
  return (
    <section aria-labelledby="open">
      <div class="section-head">
        <h2 id="open">{texts.signIn.open}</h2>
      </div>
      <ul class="open-list">
        {entries
          .filter(({ isThere }) => isThere)
          .map(({ icon, href, name, note }) => (
            <li key={href}>
              <a href={href}>
                <Icon name={icon} />
                <span>
                  <b>{name}</b>
                  <small>{note}</small>
                </span>
              </a>
            </li>
          ))}
      </ul>
    </section>
  );
}
