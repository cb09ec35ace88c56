/**
 * The operator's API keys: list, issue, rotate with an overlap, revoke. A key is shown once.
 */
import { useState } from 'preact/hooks';
import { useAttempt } from '../api/attempt.ts';
import { call, callPage } from '../api/client.ts';
import { SLOW_MS, useResource } from '../api/resource.ts';
import type { Data } from '../api/types.ts';
import { watcherChanges } from '../api/watcher-names.ts';
import { Dialog, DialogButtons } from '../parts/dialog.tsx';
import { TextField } from '../parts/fields.tsx';
import { Icon } from '../parts/icon.tsx';
import { CopyCurl, Empty, Loading, PageHead, PageLinks, usePageQuery } from '../parts/page.tsx';
import { State } from '../parts/state.tsx';
import { Lines, Table } from '../parts/table.tsx';
import { Command, Countdown, Time } from '../parts/values.tsx';
import { now } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { isSmall } from '../state/screen.ts';
import { chosenWatcher } from '../state/session.ts';
import { texts } from '../texts.ts';

type Key = Data<'GET /api/admin/keys'>[number];
type Issued = Data<'POST /api/admin/keys'>;
type Open = { kind: 'create' } | { kind: 'rotate' | 'revoke'; key: Key };

const PAGE_ROWS = '50';
const FIRST_KEY = 'npm run --silent chainbell -- keys create --watcher acme';

export function Keys() {
  const { query } = usePageQuery();
  const [open, setOpen] = useState<Open | undefined>(undefined);
  const watcher = chosenWatcher();
  const options = {
    query: {
      limit: PAGE_ROWS,
      cursor: query.cursor,
      watcher: watcher === undefined ? undefined : String(watcher.id),
    },
  };
  const keys = useResource(
    `keys ${query.cursor ?? ''}`,
    (signal) => callPage('GET /api/admin/keys', { ...options, signal }),
    { everyMs: SLOW_MS },
  );
  const close = () => {
    setOpen(undefined);
    void keys.reload();
  };
  return (
    <>
      <PageHead title={texts.keys.title} note={texts.keys.note}>
        <CopyCurl operation="GET /api/admin/keys" options={options} />
        <button type="button" class="button is-first" onClick={() => setOpen({ kind: 'create' })}>
          {texts.keys.create}
        </button>
      </PageHead>
      <Loading loaded={keys.state.value} reload={keys.reload}>
        {({ data, next }) => (
          <>
            {data.length === 0 ? (
              <Empty text={texts.keys.none}>
                <Command text={FIRST_KEY} />
              </Empty>
            ) : (
              <KeyTable keys={data} onOpen={setOpen} />
            )}
            <PageLinks next={next} words={{ first: texts.newest, next: texts.older }} />
          </>
        )}
      </Loading>
      {open?.kind === 'create' && <CreateDialog first={watcher?.name ?? ''} onClose={close} />}
      {open?.kind === 'rotate' && <RotateDialog one={open.key} onClose={close} />}
      {open?.kind === 'revoke' && <RevokeDialog one={open.key} onClose={close} />}
    </>
  );
}

type KeysProps = { keys: readonly Key[]; onOpen(open: Open): void };

function KeyTable({ keys, onOpen }: KeysProps) {
  if (isSmall.value) return <KeyLines keys={keys} onOpen={onOpen} />;
  return (
    <Table caption={texts.keys.title}>
      <thead>
        <tr>
          <th>{texts.keys.watcher}</th>
          <th>{texts.keys.id}</th>
          <th>{texts.deliveries.state}</th>
          <th class="right">{texts.addresses.created(texts.zones[zone.value])}</th>
          <th class="right">{texts.keys.ends}</th>
          <th>
            <span class="hidden">{texts.keys.actions}</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.id}>
            <th scope="row" class="medium name" title={key.watcher}>
              {key.watcher}
            </th>
            <td class="mono second">{key.id}</td>
            <td>
              <KeyState one={key} />
            </td>
            <td class="right quiet">
              <Time at={key.created_at} />
            </td>
            <td class="right quiet">
              <End one={key} />
            </td>
            <td class="right">
              <Actions one={key} onOpen={onOpen} />
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

/** The same in lines, for small screens. */
function KeyLines({ keys, onOpen }: KeysProps) {
  return (
    <Lines>
      {keys.map((key) => (
        <li key={key.id} class="row-lines">
          <span class="first-line">
            <b class="medium" title={key.watcher}>
              {key.watcher}
            </b>
            <KeyState one={key} />
          </span>
          <span class="first-line quiet">
            <span class="mono">{key.id}</span>
            <End one={key} />
          </span>
          <span class="actions">
            <Actions one={key} onOpen={onOpen} />
          </span>
        </li>
      ))}
    </Lines>
  );
}

const hasExpired = ({ expires_at: at }: Key): boolean => at !== null && Date.parse(at) <= now.value;

function KeyState({ one }: { one: Key }) {
  if (one.revoked_at !== null) return <State icon="cancelled" tone="" word={texts.keys.revoked} />;
  if (hasExpired(one)) return <State icon="cancelled" tone="" word={texts.keys.expired} />;
  if (one.expires_at !== null) return <State icon="retrying" tone="is-warn" word={texts.keys.ending} />;
  return <State icon="delivered" tone="is-ok" word={texts.keys.valid} />;
}

function End({ one }: { one: Key }) {
  if (one.revoked_at !== null) return <Time at={one.revoked_at} />;
  if (one.expires_at === null) return <span>{texts.none}</span>;
  if (hasExpired(one)) return <Time at={one.expires_at} />;
  return (
    <span>
      {texts.in} <Countdown to={one.expires_at} />
    </span>
  );
}

function Actions({ one, onOpen }: { one: Key; onOpen(open: Open): void }) {
  if (one.revoked_at !== null || hasExpired(one)) return null;
  return (
    <>
      {one.expires_at === null && (
        <button type="button" class="button is-small" onClick={() => onOpen({ kind: 'rotate', key: one })}>
          {texts.keys.rotate}
          <span class="hidden"> {one.id}</span>
        </button>
      )}{' '}
      <button
        type="button"
        class="button is-small is-bad"
        onClick={() => onOpen({ kind: 'revoke', key: one })}
      >
        {texts.keys.revoke}
        <span class="hidden"> {one.id}</span>
      </button>
    </>
  );
}

/** A new key is shown this one time, so the dialog that asks for it stays until the answer is there. */
function IssuedDialog({ issued, onClose }: { issued: Issued; onClose(): void }) {
  return (
    <Dialog title={texts.keys.created} onClose={onClose} isKept>
      <div class="notice is-warn">
        <Icon name="failing" />
        <p>{texts.keys.once}</p>
      </div>
      <Command text={issued.key} />
      <p class="prose second">{texts.keys.of(issued.watcher, issued.id)}</p>
      <footer>
        <button type="button" class="button is-first" onClick={onClose}>
          {texts.keys.kept}
        </button>
      </footer>
    </Dialog>
  );
}

function CreateDialog({ first, onClose }: { first: string; onClose(): void }) {
  const [name, setName] = useState(first);
  const [issued, setIssued] = useState<Issued | undefined>(undefined);
  const { problem, isBusy, attempt } = useAttempt();
  const close = () => isBusy || onClose();
  const create = async () => {
    setIssued(await call('POST /api/admin/keys', { body: { watcher: name.trim() } }));
    watcherChanges.value += 1;
  };
  if (issued !== undefined) return <IssuedDialog issued={issued} onClose={onClose} />;
  return (
    <Dialog title={texts.keys.createTitle} onClose={close} isKept={isBusy} onSubmit={() => attempt(create)}>
      <TextField
        label={texts.keys.watcher}
        value={name}
        onInput={setName}
        note={texts.keys.watcherNote}
        isRequired
        problem={problem}
      />
      <DialogButtons submit={texts.keys.createNow} onClose={close} isDisabled={isBusy} />
    </Dialog>
  );
}

function RotateDialog({ one, onClose }: { one: Key; onClose(): void }) {
  const [minutes, setMinutes] = useState('1440');
  const [issued, setIssued] = useState<Issued | undefined>(undefined);
  const { problem, isBusy, attempt } = useAttempt();
  const close = () => isBusy || onClose();
  const isGood = /^\d+$/.test(minutes);
  const rotate = async () =>
    setIssued(
      await call('POST /api/admin/keys/{id}/rotate', {
        path: { id: one.id },
        body: { overlap_minutes: Number(minutes) },
      }),
    );
  if (issued !== undefined) return <IssuedDialog issued={issued} onClose={onClose} />;
  return (
    <Dialog
      title={texts.keys.rotateTitle(one.watcher)}
      onClose={close}
      isKept={isBusy}
      onSubmit={() => attempt(rotate)}
    >
      <p class="prose">{texts.keys.rotateNote}</p>
      <TextField
        label={texts.keys.overlap}
        value={minutes}
        inputMode="numeric"
        onInput={setMinutes}
        problem={isGood ? problem : texts.settings.wholeNumber}
      />
      <DialogButtons submit={texts.keys.rotateNow} onClose={close} isDisabled={!isGood || isBusy} />
    </Dialog>
  );
}

function RevokeDialog({ one, onClose }: { one: Key; onClose(): void }) {
  const [remark, setRemark] = useState<string | null | undefined>(undefined);
  const { problem, isBusy, attempt } = useAttempt();
  const revoke = async () => {
    const answer = await call('DELETE /api/admin/keys/{id}', { path: { id: one.id } });
    setRemark(answer.remark);
    if (answer.remark === null) onClose();
  };
  if (typeof remark === 'string')
    return (
      <Dialog title={texts.keys.revokedTitle} onClose={onClose}>
        <p class="prose">{remark}</p>
        <footer>
          <button type="button" class="button is-first" onClick={onClose}>
            {texts.close}
          </button>
        </footer>
      </Dialog>
    );
  return (
    <Dialog title={texts.keys.revokeTitle(one.watcher)} onClose={onClose} onSubmit={() => attempt(revoke)}>
      <p class="mono">{one.id}</p>
      <p class="prose">{texts.keys.revokeNote}</p>
      <DialogButtons
        problem={problem}
        submit={texts.keys.revokeNow}
        onClose={onClose}
        isBad
        isDisabled={isBusy}
      />
    </Dialog>
  );
}
