/**
 * The operator's watchers: who they are, how many keys each has, and suspending, resuming and deleting them.
 */
import { useState } from 'preact/hooks';
import { useAttempt, useStop } from '../api/attempt.ts';
import { call, callPage } from '../api/client.ts';
import { SLOW_MS, useResource } from '../api/resource.ts';
import type { Data } from '../api/types.ts';
import { watcherChanges } from '../api/watcher-names.ts';
import { formatCount } from '../format/number.ts';
import { Dialog, DialogButtons } from '../parts/dialog.tsx';
import { TextField } from '../parts/fields.tsx';
import { CopyCurl, Empty, Loading, PageHead, PageLinks, usePageQuery } from '../parts/page.tsx';
import { Problem } from '../parts/problem.tsx';
import { State } from '../parts/state.tsx';
import { Lines, Table } from '../parts/table.tsx';
import { Command, Time } from '../parts/values.tsx';
import { zone } from '../state/preferences.ts';
import { isSmall } from '../state/screen.ts';
import { chooseWatcher, chosenWatcher } from '../state/session.ts';
import { texts } from '../texts.ts';

type Watcher = Data<'GET /api/admin/watchers'>[number];

const PAGE_ROWS = '50';

export function Watchers() {
  const { query } = usePageQuery();
  const [open, setOpen] = useState<{ kind: 'suspend' | 'delete'; watcher: Watcher } | undefined>(undefined);
  const options = { query: { limit: PAGE_ROWS, cursor: query.cursor } };
  const watchers = useResource(
    `watchers ${query.cursor ?? ''}`,
    (signal) => callPage('GET /api/admin/watchers', { ...options, signal }),
    { everyMs: SLOW_MS },
  );
  const close = () => {
    setOpen(undefined);
    void watchers.reload();
  };
  return (
    <>
      <PageHead title={texts.watchers.title} note={texts.watchers.note}>
        <CopyCurl operation="GET /api/admin/watchers" options={options} />
      </PageHead>
      <Loading loaded={watchers.state.value} reload={watchers.reload}>
        {({ data, next }) => (
          <>
            {data.length === 0 ? (
              <Empty text={texts.watchers.none}>
                <Command text="npm run --silent chainbell -- keys create --watcher acme" />
              </Empty>
            ) : (
              <WatcherTable
                watchers={data}
                onOpen={(kind, watcher) => setOpen({ kind, watcher })}
                onChanged={() => void watchers.reload()}
              />
            )}
            <PageLinks next={next} />
          </>
        )}
      </Loading>
      {open?.kind === 'suspend' && <SuspendDialog watcher={open.watcher} onClose={close} />}
      {open?.kind === 'delete' && <DeleteDialog watcher={open.watcher} onClose={close} />}
    </>
  );
}

function WatcherTable({
  watchers,
  onOpen,
  onChanged,
}: {
  watchers: readonly Watcher[];
  onOpen(kind: 'suspend' | 'delete', watcher: Watcher): void;
  onChanged(): void;
}) {
  const { problem, attempt } = useAttempt();
  const resume = (id: number) =>
    attempt(async () => {
      await call('POST /api/admin/watchers/{id}/resume', { path: { id } }).finally(onChanged);
      watcherChanges.value += 1;
    }, id);
  return (
    <>
      <Problem text={problem} />
      <WatcherRows watchers={watchers} onOpen={onOpen} onResume={resume} />
    </>
  );
}

function WatcherRows({
  watchers,
  ...actions
}: { watchers: readonly Watcher[] } & Pick<ActionsProps, 'onOpen' | 'onResume'>) {
  if (isSmall.value)
    return (
      <Lines>
        {watchers.map((watcher) => (
          <li key={watcher.id} class="row-lines">
            <span class="first-line">
              <b class="medium" title={watcher.name}>
                {watcher.name}
              </b>
              <WatcherState watcher={watcher} />
            </span>
            <span class="first-line quiet">
              <span>
                {texts.watchers.id} {watcher.id}
              </span>
              <span class={watcher.valid_keys === 0 ? 'is-warn' : ''}>
                {texts.watchers.keyCount(watcher.valid_keys)}
              </span>
            </span>
            <span class="actions">
              <Actions watcher={watcher} {...actions} />
            </span>
          </li>
        ))}
      </Lines>
    );
  return (
    <Table caption={texts.watchers.title}>
      <thead>
        <tr>
          <th class="right narrow">{texts.watchers.id}</th>
          <th>{texts.watchers.name}</th>
          <th>{texts.deliveries.state}</th>
          <th class="right">{texts.watchers.keys}</th>
          <th class="right third-rank">{texts.watchers.slices}</th>
          <th class="right third-rank">{texts.addresses.created(texts.zones[zone.value])}</th>
          <th>
            <span class="hidden">{texts.keys.actions}</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {watchers.map((watcher) => (
          <tr key={watcher.id}>
            <td class="right quiet">{watcher.id}</td>
            <th scope="row" class="medium name" title={watcher.name}>
              {watcher.name}
            </th>
            <td>
              <WatcherState watcher={watcher} />
            </td>
            <td class={`right ${watcher.valid_keys === 0 ? 'is-warn' : ''}`}>
              {formatCount(watcher.valid_keys)}
            </td>
            <td class="right quiet third-rank">{watcher.slices}</td>
            <td class="right quiet third-rank">
              <Time at={watcher.created_at} />
            </td>
            <td class="right">
              <Actions watcher={watcher} {...actions} />
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

type ActionsProps = {
  watcher: Watcher;
  onOpen(kind: 'suspend' | 'delete', watcher: Watcher): void;
  onResume(id: number): void;
};

function Actions({ watcher, onOpen, onResume }: ActionsProps) {
  const isSuspended = watcher.state === 'suspended';
  return (
    <>
      <a
        class="button is-small"
        href="/console"
        onClick={() => chooseWatcher({ id: watcher.id, name: watcher.name })}
      >
        {texts.watchers.show}
        <span class="hidden"> {watcher.name}</span>
      </a>{' '}
      {/* One button for both, which keeps the focus when the state changes. */}
      {watcher.state !== 'deleting' && (
        <button
          type="button"
          class={`button is-small ${isSuspended ? '' : 'is-bad'}`}
          onClick={() => (isSuspended ? onResume(watcher.id) : onOpen('suspend', watcher))}
        >
          {isSuspended ? texts.watchers.resume : texts.watchers.suspend}
          <span class="hidden"> {watcher.name}</span>
        </button>
      )}{' '}
      <button type="button" class="button is-small is-bad" onClick={() => onOpen('delete', watcher)}>
        {texts.watchers.delete}
        <span class="hidden"> {watcher.name}</span>
      </button>
    </>
  );
}

function WatcherState({ watcher }: { watcher: Watcher }) {
  const word = texts.watchers.states[watcher.state];
  switch (watcher.state) {
    case 'active':
      return <State icon="delivered" tone="is-ok" word={word} />;
    case 'suspended':
      return <State icon="suspended" tone="is-warn" word={word} />;
    case 'deleting':
      return <State icon="cancelled" tone="" word={word} />;
  }
}

function SuspendDialog({ watcher, onClose }: { watcher: Watcher; onClose(): void }) {
  const { problem, isBusy, attempt } = useAttempt();
  const suspend = async () => {
    await call('POST /api/admin/watchers/{id}/suspend', { path: { id: watcher.id } });
    watcherChanges.value += 1;
    onClose();
  };
  return (
    <Dialog
      title={texts.watchers.suspendTitle(watcher.name)}
      onClose={onClose}
      onSubmit={() => attempt(suspend)}
    >
      <p class="prose">{texts.watchers.suspendNote}</p>
      <DialogButtons
        problem={problem}
        submit={texts.watchers.suspendNow}
        onClose={onClose}
        isBad
        isDisabled={isBusy}
      />
    </Dialog>
  );
}

type Left = NonNullable<Data<'DELETE /api/admin/watchers/{id}'>['left']>;

/** A browser shows several blanks as one. */
const asShown = (name: string): string => name.trim().replaceAll(/\s+/g, ' ');

/** The service deletes for some seconds in each request, so the dialog repeats it until nothing is left or it is closed. */
function DeleteDialog({ watcher, onClose }: { watcher: Watcher; onClose(): void }) {
  const { problem, attempt } = useAttempt();
  const [typed, setTyped] = useState('');
  const [left, setLeft] = useState<Left | 'unknown' | undefined>(undefined);
  const stopped = useStop();
  const remove = async () => {
    setLeft('unknown');
    while (!stopped.current) {
      const answer = await call('DELETE /api/admin/watchers/{id}', { path: { id: watcher.id } });
      if (answer.deleted) {
        watcherChanges.value += 1;
        if (chosenWatcher()?.id === watcher.id) chooseWatcher(undefined);
        return onClose();
      }
      setLeft(answer.left ?? 'unknown');
    }
  };
  const isRunning = left !== undefined && problem === undefined;
  return (
    <Dialog
      title={texts.watchers.deleteTitle(watcher.name)}
      onClose={onClose}
      onSubmit={() => attempt(remove)}
    >
      <p class="prose">{texts.watchers.deleteNote}</p>
      <TextField
        label={texts.watchers.deleteName(watcher.name)}
        value={typed}
        onInput={setTyped}
        isRequired
        isMono
      />
      <p role="status">
        {isRunning &&
          (left === 'unknown'
            ? texts.watchers.deleting
            : texts.watchers.left(formatCount(left.records), formatCount(left.notifications)))}
      </p>
      <DialogButtons
        problem={problem}
        submit={texts.watchers.deleteNow}
        onClose={onClose}
        isBad
        isDisabled={asShown(typed) !== asShown(watcher.name) || isRunning}
      />
    </Dialog>
  );
}
