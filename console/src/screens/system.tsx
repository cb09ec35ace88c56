/**
 * The operator's view of the program: the path from the chain to the receivers, nodes, proof, reorgs, processes, and the
 * configuration without secrets.
 */
import { call } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import type { Data, Status } from '../api/types.ts';
import { groupDigits } from '../format/amount.ts';
import { formatCount } from '../format/number.ts';
import { Icon } from '../parts/icon.tsx';
import { CopyCurl, Empty, Loading, PageHead } from '../parts/page.tsx';
import { Section } from '../parts/section.tsx';
import { State } from '../parts/state.tsx';
import { Table } from '../parts/table.tsx';
import { Address, Age, Copy, Time } from '../parts/values.tsx';
import { onServer } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { useProblemShown } from '../state/problem-shown.ts';
import { systemTexts } from '../system-texts.ts';
import { texts } from '../texts.ts';
import { Nodes, Proof } from './system-nodes.tsx';
import { Path } from './system-path.tsx';

const STATUS_MS = 4_000;
const SLOW_MS = 30_000;
const REORGS = '20';

type Process = Data<'GET /api/admin/deployment'>['processes'][number];

export function System() {
  const status = useResource('operator status', (signal) => call('GET /api/admin/status', { signal }), {
    everyMs: STATUS_MS,
  });
  const deployment = useResource('deployment', (signal) => call('GET /api/admin/deployment', { signal }), {
    everyMs: STATUS_MS,
  });
  const reorgs = useResource(
    'reorgs',
    (signal) => call('GET /api/admin/reorgs', { query: { limit: REORGS }, signal }),
    { everyMs: SLOW_MS },
  );
  const configuration = useResource('configuration', (signal) =>
    call('GET /api/admin/configuration', { signal }),
  );
  return (
    <>
      <PageHead title={systemTexts.title} note={<Version status={status.state.value.data} />}>
        <CopyCurl operation="GET /api/admin/status" />
      </PageHead>
      <Loading loaded={status.state.value} reload={status.reload}>
        {(data) => (
          <>
            <Problems status={data} />
            <Path status={data} />
            <Nodes nodes={data.nodes} quorum={data.quorum} />
            <Proof proof={data.proof} />
          </>
        )}
      </Loading>
      <Section id="processes" title={systemTexts.processes}>
        <Loading loaded={deployment.state.value} reload={deployment.reload}>
          {(data) => <Processes processes={data.processes} />}
        </Loading>
      </Section>
      <Section id="reorgs" title={systemTexts.reorgs} note={texts.newestFirst}>
        <Loading loaded={reorgs.state.value} reload={reorgs.reload}>
          {(data) => <Reorgs reorgs={data} />}
        </Loading>
      </Section>
      <Section id="configuration" title={systemTexts.configuration} note={systemTexts.noSecrets}>
        <Loading loaded={configuration.state.value} reload={configuration.reload} isLoadedOnce>
          {(data) => <Configuration values={data} at={configuration.state.value.at ?? 0} />}
        </Loading>
      </Section>
    </>
  );
}

function Version({ status }: { status: Status | undefined }) {
  if (status === undefined) return <>&nbsp;</>;
  return <>{systemTexts.version(status.version, systemTexts.databases[status.database])}</>;
}

/** Everything that is wrong now, with its time. */
function Problems({ status }: { status: Status }) {
  useProblemShown();
  const found: { text: string; since: string | null }[] = [
    ...(status.problem === null ? [] : [{ text: status.problem.message, since: status.problem.since }]),
    ...(status.write_failures ?? []).map(({ part, message, since }) => ({
      text: systemTexts.writeFailure(part, message),
      since,
    })),
    ...[...(status.missing ?? []), ...(status.failing_work ?? [])].map(({ message, since }) => ({
      text: message,
      since,
    })),
    ...(status.clock_step === null
      ? []
      : [{ text: systemTexts.clockStep(status.clock_step.seconds), since: status.clock_step.at }]),
  ];
  // The first of the missing roles, and of the rest, is the problem too.
  const shown = new Map(found.map((one) => [one.text, one]));
  if (shown.size === 0)
    return (
      <div class="notice is-ok">
        <Icon name="delivered" />
        <p>{systemTexts.states[status.state]}</p>
      </div>
    );
  return (
    <div class={status.state === 'holding' ? 'notice is-bad' : 'notice is-warn'} role="status">
      <Icon name="failing" />
      <div>
        <p class="medium">{systemTexts.states[status.state]}</p>
        {Array.from(shown.values(), ({ text, since }) => (
          <p key={text}>
            {text}{' '}
            {since !== null && (
              <span class="second">
                {texts.delivery.since} <Time at={since} />
              </span>
            )}
          </p>
        ))}
      </div>
    </div>
  );
}

function Processes({ processes }: { processes: readonly Process[] }) {
  return (
    <Table caption={systemTexts.processes}>
      <thead>
        <tr>
          <th>{systemTexts.process}</th>
          <th>{texts.deliveries.state}</th>
          <th>{systemTexts.roles}</th>
          <th>{systemTexts.leads}</th>
          <th class="second-rank">{systemTexts.versionHead}</th>
          <th class="right">{systemTexts.started(texts.zones[zone.value])}</th>
          <th class="right">{systemTexts.seen}</th>
        </tr>
      </thead>
      <tbody>
        {processes.map((one) => (
          <tr key={one.id}>
            <th scope="row">
              {one.host}{' '}
              <span class="quiet">
                pid {one.pid}, {one.id}
              </span>
            </th>
            <td>
              <State
                icon={
                  one.state === 'running' ? 'delivered' : one.state === 'stopped' ? 'cancelled' : 'failing'
                }
                tone={one.state === 'running' ? 'is-ok' : one.state === 'stopped' ? '' : 'is-bad'}
                word={systemTexts.processStates[one.state]}
              />
              {one.error !== null && <div class="second">{systemTexts.startError(one.error)}</div>}
            </td>
            <td class="second">{one.roles.join(', ')}</td>
            <td class="second">{one.follower?.leads === true ? systemTexts.following : texts.none}</td>
            <td class="second second-rank">{one.version}</td>
            <td class="right quiet">
              <Time at={one.started_at} />
            </td>
            <td class="right quiet">
              <Age since={one.seen_at} /> {texts.ago}
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function Reorgs({ reorgs }: { reorgs: Data<'GET /api/admin/reorgs'> }) {
  if (reorgs.length === 0) return <Empty text={systemTexts.noReorgs} />;
  return (
    <Table caption={systemTexts.reorgs}>
      <thead>
        <tr>
          <th>{texts.timeIn(zone.value)}</th>
          <th class="right">{systemTexts.depth}</th>
          <th>{systemTexts.blocksHead}</th>
          <th>{systemTexts.oldBlock}</th>
          <th>{systemTexts.newBlock}</th>
          <th class="right">{systemTexts.orphaned}</th>
        </tr>
      </thead>
      <tbody>
        {reorgs.map((one) => (
          <tr key={`${one.at} ${one.from_block} ${one.old_hash}`}>
            <td class="quiet">
              <Time at={one.at} />
            </td>
            <td class="right medium">{one.depth}</td>
            <td class="mono">
              #{groupDigits(String(one.from_block))}
              {one.to_block !== one.from_block && `–${groupDigits(String(one.to_block))}`}
            </td>
            <td>
              <Address value={one.old_hash} />
            </td>
            <td>{one.new_hash === null ? texts.none : <Address value={one.new_hash} isOwn />}</td>
            <td class="right">
              {one.notifications_orphaned === null ? texts.none : formatCount(one.notifications_orphaned)}
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

/** `at`: when they were loaded, by this machine's clock. */
function Configuration({ values, at }: { values: Record<string, unknown>; at: number }) {
  const text = JSON.stringify(values, null, 2);
  return (
    <details class="as-table">
      <summary>{systemTexts.showConfiguration}</summary>
      <p class="below">
        <Copy text={text} label={systemTexts.copyConfiguration}>
          {systemTexts.copyConfiguration}
        </Copy>
        <span>
          {systemTexts.asOf} <Time at={new Date(onServer(at)).toISOString()} />
        </span>
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </details>
  );
}
