/**
 * One watched address: its facts and settings, a test webhook, and its deliveries.
 */

import { useState } from 'preact/hooks';
import { useLocation, useRoute } from 'preact-iso';
import { useAttempt } from '../api/attempt.ts';
import { call, curlOf } from '../api/client.ts';
import { SLOW_MS, useResource } from '../api/resource.ts';
import { useTailOf } from '../api/tail.ts';
import type { Data, TestResult, WatchedAddress } from '../api/types.ts';
import { formatAttempt, formatCount } from '../format/number.ts';
import { longAddress, visible, withoutScheme } from '../format/short.ts';
import { DeliveryChart } from '../parts/delivery-chart.tsx';
import { Dialog, DialogButtons } from '../parts/dialog.tsx';
import { Figure, Figures } from '../parts/figures.tsx';
import { Icon } from '../parts/icon.tsx';
import { MessageBody } from '../parts/message-body.tsx';
import {
  CopyCurl,
  Ghosts,
  Loading,
  Missing,
  PageHead,
  PeriodChoice,
  periodOf,
  usePageQuery,
} from '../parts/page.tsx';
import { TailTable } from '../parts/tail-table.tsx';
import { Answer, titleOf } from '../parts/time-line.tsx';
import { Age, Copy, Time } from '../parts/values.tsx';
import { WatcherNeeded } from '../parts/watcher-choice.tsx';
import { showsAll } from '../state/session.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';
import { AddressDialog } from './address-dialog.tsx';
import { SettingsForm } from './settings-form.tsx';

type Stats = Data<'GET /api/notifications/watched-addresses/{id}/stats'>;

const DELIVERIES = 20;

export function AddressPage() {
  return showsAll.value ? <WatcherNeeded title={texts.address.title} /> : <OneRecord />;
}

function OneRecord() {
  const { params } = useRoute();
  const id = params.id ?? '';
  const record = useResource(
    `address ${id}`,
    (signal) => call('GET /api/notifications/watched-addresses/{id}', { path: { id }, signal }),
    { everyMs: SLOW_MS },
  );
  const { error } = record.state.value;
  // 400 and 414: not even the form of an id.
  if (error !== undefined && [400, 404, 414].includes(error.status))
    return (
      <Missing
        title={texts.notFound.title}
        text={texts.address.missing}
        href="/console/addresses"
        back={texts.address.back}
      />
    );
  return (
    <Loading loaded={record.state.value} reload={record.reload}>
      {(one) => <Record key={one.id} record={one} onChanged={() => void record.reload()} />}
    </Loading>
  );
}

function Record({ record, onChanged }: { record: WatchedAddress; onChanged(): void }) {
  const [open, setOpen] = useState<'edit' | 'delete' | undefined>(undefined);
  const { route } = useLocation();
  return (
    <>
      <PageHead
        title={texts.address.title}
        note={
          <>
            <span class="mono second">{record.address}</span>{' '}
            <Copy text={record.address} label={texts.addresses.copy} />
          </>
        }
      >
        <PeriodChoice />
        <CopyCurl
          operation="GET /api/notifications/watched-addresses/{id}"
          options={{ path: { id: record.id } }}
        />
        <button type="button" class="button" onClick={() => setOpen('edit')}>
          {texts.address.edit}
        </button>
        <button type="button" class="button is-bad" onClick={() => setOpen('delete')}>
          {texts.address.delete}
        </button>
      </PageHead>
      <Counts id={record.id} />
      <Chart id={record.id} />
      <div class="columns">
        <Deliveries record={record} />
        <div>
          <section aria-labelledby="facts">
            <h2 id="facts">{texts.address.facts}</h2>
            <dl class="facts">
              <dt>{texts.addresses.url}</dt>
              <dd>{withoutScheme(record.webhook_url)}</dd>
              <dt>{texts.addresses.watches}</dt>
              <dd>{texts.addresses.kinds(record.watch_coin, record.watch_token)}</dd>
              <dt>{texts.address.id}</dt>
              <dd>
                <span class="mono" title={record.id}>
                  {longAddress(record.id)}
                </span>{' '}
                <Copy text={record.id} label={texts.address.copyId} />
              </dd>
              <dt>{texts.address.created}</dt>
              <dd>
                <Time at={record.created_at} />
              </dd>
            </dl>
          </section>
          <TestSection record={record} />
          <SettingsForm id={record.id} />
        </div>
      </div>
      {open === 'edit' && (
        <AddressDialog record={record} onClose={() => setOpen(undefined)} onSaved={onChanged} />
      )}
      {open === 'delete' && (
        <DeleteDialog
          record={record}
          onClose={() => setOpen(undefined)}
          onDeleted={() => route('/console/addresses')}
        />
      )}
    </>
  );
}

function Counts({ id }: { id: string }) {
  const { state } = useResource(
    `address stats ${id}`,
    (signal) => call('GET /api/notifications/watched-addresses/{id}/stats', { path: { id }, signal }),
    { everyMs: 15_000 },
  );
  const { data } = state.value;
  const plus = data?.is_complete === false ? '+' : '';
  const count = (value: number | undefined) =>
    value === undefined ? undefined : `${formatCount(value)}${plus}`;
  return (
    <Figures>
      <Figure
        label={texts.address.delivered}
        value={count(data?.processed)}
        note={
          <>
            {texts.address.lastSuccess} <Time at={data?.last_success_at} />
          </>
        }
      />
      <Figure
        label={texts.address.waiting}
        value={count(data?.waiting)}
        note={
          data?.oldest_due_at == null ? (
            data?.waiting === 0 ? (
              texts.overview.nothingWaits
            ) : (
              texts.address.noneDue
            )
          ) : (
            <>
              {texts.address.dueSince} <Age since={data.oldest_due_at} />
            </>
          )
        }
        tone={data?.oldest_due_at == null ? '' : 'is-warn'}
      />
      <Figure label={texts.address.held} value={count(data?.held)} note={texts.address.heldNote} />
      <Figure
        label={texts.address.failed}
        value={
          data === undefined ? undefined : data.last_failure_at === null ? (
            texts.address.never
          ) : (
            <Age since={data.last_failure_at} />
          )
        }
        unit={data?.last_failure_at == null ? '' : texts.ago}
        note={<Time at={data?.last_failure_at} />}
      />
    </Figures>
  );
}

function Chart({ id }: { id: string }) {
  const { query } = usePageQuery();
  const period = periodOf(query);
  const statistics = useResource(
    `statistics ${id} ${period}`,
    (signal) =>
      call('GET /api/notifications/statistics', { query: { period, watched_address_id: id }, signal }),
    { everyMs: 15_000 },
  );
  return (
    <Loading loaded={statistics.state.value} reload={statistics.reload} ghost={<Ghosts rows={5} />}>
      {(data) => <DeliveryChart statistics={data} />}
    </Loading>
  );
}

function Deliveries({ record }: { record: WatchedAddress }) {
  const rows = useTailOf(record.id, DELIVERIES);
  const { value } = rows;
  const hrefOf = (id: number) => `/console/deliveries/${id}?watched_address_id=${record.id}`;
  return (
    <section aria-labelledby="deliveries">
      <div class="section-head">
        <h2 id="deliveries">{texts.address.deliveries}</h2>
        <span>{texts.overview.tailNote}</span>
        <div class="actions">
          <a class="link" href={`/console/deliveries?watched_address_id=${record.id}`}>
            {texts.overview.allDeliveries}
          </a>
        </div>
      </div>
      <TailTable
        rows={value}
        hrefOf={hrefOf}
        caption={texts.address.deliveries}
        empty={texts.address.none}
        command={() =>
          curlOf('POST /api/notifications/watched-addresses/{id}/test', { path: { id: record.id } })
        }
      />
    </section>
  );
}

function TestSection({ record }: { record: WatchedAddress }) {
  const [result, setResult] = useState<TestResult | undefined>(undefined);
  const { problem, isBusy, attempt } = useAttempt();
  const run = () =>
    attempt(async () => {
      setResult(undefined);
      setResult(
        await call('POST /api/notifications/watched-addresses/{id}/test', { path: { id: record.id } }),
      );
    });
  useShortcut('Shift+T', run);
  return (
    <section aria-labelledby="test">
      <div class="section-head">
        <h2 id="test">{texts.address.test}</h2>
        <div class="actions">
          <button type="button" class="button is-small" disabled={isBusy} onClick={run}>
            {texts.address.sendTest}
          </button>
        </div>
      </div>
      <div aria-live="polite">
        {isBusy ? (
          <p class="quiet">{texts.address.testing}</p>
        ) : problem !== undefined ? (
          <p class="problem">{problem}</p>
        ) : result !== undefined ? (
          <Verdict result={result} />
        ) : (
          <p class="quiet">{texts.address.testNote}</p>
        )}
      </div>
    </section>
  );
}

function Verdict({ result }: { result: TestResult }) {
  const { request } = result;
  const isGood = result.outcome === 'success';
  return (
    <>
      <div class={isGood ? 'notice is-ok' : 'notice is-bad'}>
        <Icon name={isGood ? 'delivered' : 'failing'} />
        <div>
          <p class="medium">
            {titleOf(result)} · {formatAttempt(result.duration_ms)}
          </p>
          <p>{isGood ? texts.address.good : (texts.advice[result.outcome] ?? texts.address.bad)}</p>
        </div>
      </div>
      <h3>{texts.address.answer}</h3>
      {result.response === null || result.response === '' ? (
        <p class="quiet">{result.status === null ? texts.address.noAnswer : texts.address.noBody}</p>
      ) : (
        <Answer text={result.response} />
      )}
      <h3>{texts.address.request}</h3>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
      <pre class="answer" role="group" aria-label={texts.address.request} tabIndex={0}>
        {request.method} {visible(request.url)}
      </pre>
      <MessageBody message={request} />
    </>
  );
}

const unsentOf = ({ waiting, held, is_complete: isComplete }: Stats): string =>
  `${formatCount(waiting + held)}${isComplete ? '' : '+'}`;

function DeleteDialog({
  record,
  onClose,
  onDeleted,
}: {
  record: WatchedAddress;
  onClose(): void;
  onDeleted(): void;
}) {
  const { problem, isBusy, attempt } = useAttempt();
  const { state } = useResource(`address stats ${record.id}`, (signal) =>
    call('GET /api/notifications/watched-addresses/{id}/stats', { path: { id: record.id }, signal }),
  );
  const remove = async () => {
    await call('DELETE /api/notifications/watched-addresses/{id}', { path: { id: record.id } });
    onClose();
    onDeleted();
  };
  const { data } = state.value;
  return (
    <Dialog title={texts.address.deleteTitle} onClose={onClose} onSubmit={() => attempt(remove)}>
      <p class="mono">{record.address}</p>
      <p class="prose">{texts.address.deleteNote(data && unsentOf(data))}</p>
      <DialogButtons
        problem={problem}
        submit={texts.address.deleteNow}
        onClose={onClose}
        isBad
        isDisabled={isBusy}
      />
    </Dialog>
  );
}
