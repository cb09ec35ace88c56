/**
 * The nodes with their state, speed and errors, and what of their answers is proved.
 */
import type { Status } from '../api/types.ts';
import { groupDigits } from '../format/amount.ts';
import { formatCount, formatDuration } from '../format/number.ts';
import { Empty } from '../parts/page.tsx';
import { Section } from '../parts/section.tsx';
import { State } from '../parts/state.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/values.tsx';
import { systemTexts } from '../system-texts.ts';
import { texts } from '../texts.ts';

type Node = Status['nodes'][number];

export function Nodes({ nodes, quorum }: { nodes: readonly Node[]; quorum: Status['quorum'] }) {
  return (
    <Section
      id="nodes"
      title={systemTexts.nodes}
      {...(quorum !== null && { note: systemTexts.quorum(quorum.votes, quorum.needed, quorum.nodes) })}
    >
      {nodes.length === 0 ? (
        <Empty text={systemTexts.noNodes} />
      ) : (
        <Table caption={systemTexts.nodes}>
          <thead>
            <tr>
              <th>{systemTexts.node}</th>
              <th>{texts.deliveries.state}</th>
              <th class="right">{systemTexts.head}</th>
              <th class="right">p50</th>
              <th class="right">p95</th>
              <th class="right">{systemTexts.errors}</th>
              <th class="right second-rank">{systemTexts.inFlight}</th>
              <th class="right second-rank">{systemTexts.overtaken}</th>
              <th class="right third-rank">{systemTexts.disproved}</th>
              <th class="third-rank">{systemTexts.traces}</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((node) => (
              <NodeRow key={node.name} node={node} />
            ))}
          </tbody>
        </Table>
      )}
    </Section>
  );
}

function NodeRow({ node }: { node: Node }) {
  const { methods, error, limit_reason: limit } = node;
  const main = [...methods].sort((one, other) => other.calls - one.calls)[0];
  const calls = methods.reduce((sum, one) => sum + one.calls, 0);
  const errors = methods.reduce((sum, one) => sum + one.errors, 0);
  const duration = (ms: number | null | undefined) =>
    ms === null || ms === undefined ? texts.none : formatDuration(ms);
  const note = error ?? limit;
  return (
    <tr>
      <th scope="row" class="medium">
        {node.name}
        {note !== null && <small class="reason">{note}</small>}
        {node.disproved !== null && (
          <small class="reason">
            {systemTexts.lastDisproved} <Time at={node.disproved.at} />: {node.disproved.message}
          </small>
        )}
      </th>
      <td>
        <NodeState state={node.state} />
      </td>
      <td class="right mono">{node.head === null ? texts.none : `#${groupDigits(String(node.head))}`}</td>
      <td class="right">{duration(main?.p50_ms)}</td>
      <td class="right">{duration(main?.p95_ms)}</td>
      <td class={`right ${errors > 0 ? 'is-warn' : 'quiet'}`} title={systemTexts.ofCalls(formatCount(calls))}>
        {formatCount(errors)}
      </td>
      <td class="right second-rank">
        {node.in_flight} / {node.concurrency_max}
      </td>
      <td class="right second-rank">{formatCount(node.overtaken)}</td>
      <td class={`right third-rank ${node.disproved_count > 0 ? 'is-bad' : 'quiet'}`}>
        {formatCount(node.disproved_count)}
      </td>
      <td class="third-rank second">{node.capabilities?.traces ?? texts.none}</td>
    </tr>
  );
}

function NodeState({ state }: { state: Node['state'] }) {
  const word = systemTexts.nodeStates[state];
  switch (state) {
    case 'ok':
      return <State icon="delivered" tone="is-ok" word={word} />;
    case 'slow':
    case 'behind':
    case 'limited':
      return <State icon="retrying" tone="is-warn" word={word} />;
    case 'failing':
    case 'disagrees':
    case 'wrong_chain':
      return <State icon="failing" tone="is-bad" word={word} />;
    case 'unknown':
      return <State icon="waiting" tone="" word={word} />;
  }
}

export function Proof({ proof }: { proof: Status['proof'] }) {
  if (proof === null) return null;
  return (
    <Section id="proof" title={systemTexts.proof} note={systemTexts.proofMode(proof.mode)}>
      <ul class="checks">
        {Object.entries(proof.checks).map(([name, state]) => (
          <li key={name}>
            <State
              icon={state === 'enforced' ? 'delivered' : state === 'calibrating' ? 'hung' : 'waiting'}
              tone={state === 'enforced' ? 'is-ok' : state === 'calibrating' ? 'is-warn' : ''}
              word={systemTexts.proofChecks[name as keyof typeof systemTexts.proofChecks] ?? name}
            />
            <span class="quiet">{systemTexts.proofStates[state]}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
