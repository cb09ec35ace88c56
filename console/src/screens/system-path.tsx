/**
 * The path of a transfer from the chain to its receiver, as a drawing.
 */
import type { ComponentChildren } from 'preact';
import { chain } from '../api/chain.ts';
import type { Status } from '../api/types.ts';
import { groupDigits } from '../format/amount.ts';
import { formatAge, formatCount, formatDuration } from '../format/number.ts';
import { Icon } from '../parts/icon.tsx';
import { Time } from '../parts/values.tsx';
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
        <h2 id="path">{texts.system.path}</h2>
        <span>{texts.system.pathNote}</span>
      </div>
      <ol class="path">
        <Station
          name={texts.system.chain}
          value={block(head.head)}
          note={texts.system.nodesWork(working, nodes.length)}
        />
        <Arrow
          value={lagBlocks === null ? texts.none : texts.system.blocksBehind(lagBlocks)}
          note={
            blockMs == null
              ? texts.system.rateUnknown
              : texts.system.every(blockMs < 1000 ? formatDuration(blockMs) : formatAge(blockMs))
          }
          isLate={(lagSeconds ?? 0) > 60}
        />
        <Station
          name={texts.system.blocks}
          value={block(cursor?.number)}
          note={texts.system.finalized(block(head.finalized))}
        />
        <Arrow
          value={storeMs === undefined ? texts.none : formatDuration(storeMs)}
          note={texts.system.minedToStored}
          isLate={(storeMs ?? 0) > 60_000}
        />
        <Station
          name={texts.system.database}
          value={queue === null ? texts.none : texts.system.waiting(formatCount(queue.waiting))}
          note={queue === null ? BLANK : texts.system.held(formatCount(queue.held + queue.deferred))}
        />
        <Arrow
          value={queue === null ? texts.none : texts.system.due(formatCount(queue.due))}
          note={
            queue === null
              ? BLANK
              : queue.oldest_due_age_seconds <= 0
                ? texts.system.noneLate
                : texts.system.oldestDue(formatAge(queue.oldest_due_age_seconds * 1000))
          }
          isLate={(queue?.oldest_due_age_seconds ?? 0) > 60}
        />
        <Station
          name={texts.system.receivers}
          value={receivers === null ? texts.none : texts.system.failing(receivers.failing)}
          note={
            receivers === null ? (
              BLANK
            ) : receivers.since === null ? (
              texts.system.allAnswer
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
