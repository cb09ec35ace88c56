/**
 * What doesn't fit into the tab bar of small screens: the search, the other screens, and signing out.
 */
import { forgetAll } from '../api/resource.ts';
import { Icon } from '../parts/icon.tsx';
import { PageHead } from '../parts/page.tsx';
import { WatcherChoice } from '../parts/watcher-choice.tsx';
import { isOperator, session, signOut } from '../state/session.ts';
import { texts } from '../texts.ts';
import { SingleKeys } from './help.tsx';
import { openEntries, operators, secrets } from './rail.tsx';
import { Search } from './top-bar.tsx';

export function More() {
  const entries = [...openEntries(), ...(isOperator.value ? operators : []), secrets];
  return (
    <>
      <PageHead title={texts.screens.more} />
      {session.value.kind !== 'visitor' && <Search />}
      {isOperator.value && <WatcherChoice />}
      <ul class="menu-list">
        {entries.map(({ icon, href, name }) => (
          <li key={href}>
            <a href={href}>
              <Icon name={icon} />
              {name}
            </a>
          </li>
        ))}
      </ul>
      <SingleKeys />
      <p class="below">
        <button
          type="button"
          class="button"
          onClick={() => {
            forgetAll();
            signOut();
          }}
        >
          {texts.signOut}
        </button>
      </p>
    </>
  );
}
