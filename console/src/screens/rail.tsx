/**
 * The rail with the screens that the visitor may open.
 */

import { useLocation } from 'preact-iso';
import { chain } from '../api/chain.ts';
import { FAILING_MAX, useFailing } from '../api/failing.ts';
import { forgetAll } from '../api/resource.ts';
import { Bell, Icon, type IconName } from '../parts/icon.tsx';
import { WatcherChoice } from '../parts/watcher-choice.tsx';
import { isOperator, session, signOut } from '../state/session.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';

export type Entry = { icon: IconName; href: string; name: string; key?: string };

export const own: readonly Entry[] = [
  { icon: 'overview', href: '/console', name: texts.screens.overview, key: 'o' },
  { icon: 'deliveries', href: '/console/deliveries', name: texts.screens.deliveries, key: 'd' },
  { icon: 'addresses', href: '/console/addresses', name: texts.screens.addresses, key: 'a' },
  { icon: 'receivers', href: '/console/receivers', name: texts.screens.receivers, key: 'r' },
];
export const secrets: Entry = { icon: 'secrets', href: '/console/secrets', name: texts.screens.secrets };
export const operators: readonly Entry[] = [
  { icon: 'system', href: '/console/system', name: texts.screens.system, key: 's' },
  { icon: 'watchers', href: '/console/watchers', name: texts.screens.watchers },
  { icon: 'keys', href: '/console/keys', name: texts.screens.keys },
];

/** The screens about public data that this installation has. */
export function openEntries(): Entry[] {
  const has = chain.state.value.data?.has;
  return [
    ...(has === undefined || has.points
      ? [{ icon: 'points', href: '/console/points', name: texts.screens.points, key: 'p' } as const]
      : []),
    ...(has === undefined || has.prices || has.pairs
      ? [{ icon: 'market', href: '/console/market', name: texts.screens.market, key: 'm' } as const]
      : []),
    ...(has === undefined || has.supply
      ? [{ icon: 'supply', href: '/console/supply', name: texts.screens.supply } as const]
      : []),
  ];
}

export function Rail({ isIn }: { isIn: boolean }) {
  const failing = useFailing().state.value.data?.length ?? 0;
  return (
    <div class="rail">
      <nav aria-label={texts.mainMenu}>
        <a class="brand" href="/console">
          <Bell />
          <span class="name">Chainbell</span>
        </a>
        {isOperator.value && (
          <div class="whose">
            <WatcherChoice />
          </div>
        )}
        {isIn && (
          <ul>
            {own.map((entry) => (
              <RailLink key={entry.href} entry={entry} failing={entry.icon === 'receivers' ? failing : 0} />
            ))}
          </ul>
        )}
        {openEntries().length > 0 && <h2>{texts.chainData}</h2>}
        <ul>
          {openEntries().map((entry) => (
            <RailLink key={entry.href} entry={entry} />
          ))}
        </ul>
        {isIn && (
          <>
            <h2>{isOperator.value ? texts.operator : texts.account}</h2>
            <ul>
              {isOperator.value && operators.map((entry) => <RailLink key={entry.href} entry={entry} />)}
              <RailLink entry={secrets} />
            </ul>
          </>
        )}
        <Foot />
      </nav>
    </div>
  );
}

function RailLink({ entry, failing = 0 }: { entry: Entry; failing?: number }) {
  const { path, route } = useLocation();
  useShortcut(`g ${entry.key}`, entry.key === undefined ? undefined : () => route(entry.href));
  const isCurrent = entry.href === '/console' ? /^\/console\/?$/.test(path) : path.startsWith(entry.href);
  return (
    <li>
      <a href={entry.href} aria-current={isCurrent ? 'page' : undefined} title={entry.name}>
        <Icon name={entry.icon} />
        <span class="name">{entry.name}</span>
        {failing > 0 && (
          <span class="count is-bad">
            <Icon name="alert" />
            {failing}
            {failing === FAILING_MAX && '+'}
            <span class="hidden"> {texts.failing}</span>
          </span>
        )}
      </a>
    </li>
  );
}

function Foot() {
  const { value } = session;
  const leave = () => {
    forgetAll();
    signOut();
  };
  if (value.kind === 'visitor')
    return (
      <div class="foot">
        <a class="link" href="/console/sign-in">
          {texts.signIn.submit}
        </a>
      </div>
    );
  return (
    <div class="foot">
      <span>
        {value.kind === 'watcher' ? (
          <>
            <b>{value.watcher.name}</b> · {texts.watcherNumber(value.watcher.id)}
          </>
        ) : (
          <b>{texts.operator}</b>
        )}
      </span>
      <span>{texts.keyInTab(value.token.slice(-4), value.kind === 'operator')}</span>
      <button type="button" class="link" onClick={leave}>
        {texts.signOut}
      </button>
    </div>
  );
}
