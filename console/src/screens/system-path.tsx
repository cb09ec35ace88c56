/**
 * The path of a transfer from the chain to its receiver, as a drawing.
 */
import type { ComponentChildren } from 'preact';
import { chain } from '../api/chain.ts';
import type { Status } from '../api/types.ts';
import { groupDigits } from '../format/amount.ts';
import { formatAge, formatDuration } from '../format/number.ts';
import { formatQueued } from '../format/queue.ts';
import { Icon } from '../parts/icon.tsx';
import { Time } from '../parts/values.tsx';
import { systemTexts } from '../system-texts.ts';
import { texts } from '../texts.ts';

/** Keeps the height of a note that isn't known. */
const BLANK = '\u00a0';

/** The path of a transfer, with what passes and how far behind it is at each arrow. */
export function Path({ status }: { status: Status }) {
  const {
    cursor,
    chain: head,
    queue,
    lag_blocks: lagBlocks,
    lag_seconds: lagSeconds,
    receivers,
    nodes,
  } = status;
  const working = nodes.filter(({ state }) => state === 'ok' || state === 'slow').length;
  const blockMs = chain.state.value.data?.block_time_ms;
  const storeMs =
    cursor === null ? undefined : Math.max(0, Date.parse(cursor.stored_at) - Date.parse(cursor.mined_at));
  const block = (number: number | null | undefined) =>
    number === null || number === undefined ? texts.none : `#${groupDigits(String(number))}`;
  return (
    <section aria-labelledby="path">
      <div class="section-head">
        <h2 id="path">{systemTexts.path}</h2>
        <span>{systemTexts.pathNote}</span>
      </div>
      <ol class="path">
        <Station
          name={systemTexts.chain}
          value={block(head.head)}
          note={nodes.length === 0 ? systemTexts.otherFollows : systemTexts.nodesWork(working, nodes.length)}
        />
        <Arrow
          value={
            status.state === 'holding'
              ? systemTexts.onHold
              : lagBlocks === null
                ? texts.none
                : systemTexts.blocksBehind(lagBlocks)
          }
          note={
            blockMs == null
              ? systemTexts.rateUnknown
              : systemTexts.every(blockMs < 1000 ? formatDuration(blockMs) : formatAge(blockMs))
          }
          isLate={status.state === 'holding' || (lagSeconds ?? 0) > 60}
        />
        <Station
          name={systemTexts.blocks}
          value={block(cursor?.number)}
          note={systemTexts.finalized(block(head.finalized))}
        />
        <Arrow
          value={storeMs === undefined ? texts.none : formatDuration(storeMs)}
          note={systemTexts.minedToStored}
          isLate={(storeMs ?? 0) > 60_000}
        />
        <Station
          name={systemTexts.database}
          value={queue === null ? texts.none : systemTexts.waiting(formatQueued(queue, [queue.waiting]))}
          note={queue === null ? BLANK : systemTexts.held(formatQueued(queue, [queue.held, queue.deferred]))}
        />
        <Arrow
          value={queue === null ? texts.none : systemTexts.due(formatQueued(queue, [queue.due]))}
          note={
            queue === null
              ? BLANK
              : queue.oldest_due_age_seconds <= 0
                ? systemTexts.noneLate
                : systemTexts.oldestDue(formatAge(queue.oldest_due_age_seconds * 1000))
          }
          isLate={(queue?.oldest_due_age_seconds ?? 0) > 60}
        />
        <Station
          name={systemTexts.receivers}
          value={receivers === null ? texts.none : systemTexts.failing(receivers.failing)}
          note={
            receivers === null ? (
              BLANK
            ) : receivers.since === null ? (
              systemTexts.allAnswer
            ) : (
              <>
                {texts.delivery.since} <Time at={receivers.since} />
              </>
            )
          }
        />
      </ol>
    </section>
  );
}

function Station({ name, value, note }: { name: string; value: string; note: ComponentChildren }) {
  return (
    <li class="station">
      <span class="quiet">{name}</span>
      <b>{value}</b>
      <span class="quiet">{note}</span>
    </li>
  );
}

function Arrow({ value, note, isLate }: { value: string; note: string; isLate: boolean }) {
  return (
    <li class={isLate ? 'arrow is-warn' : 'arrow'}>
      <b>{value}</b>
      <span class="line">
        <Icon name="right" />
      </span>
      <span class="quiet">{note}</span>
    </li>
  );
}
