/**
 * The newest deliveries of a tail: a table, or rows of two lines on a small screen.
 */
import type { TailRow } from '../api/tail.ts';
import { isSmall } from '../state/screen.ts';
import { texts } from '../texts.ts';
import { DeliveryHeads, DeliveryLines, DeliveryRow } from './delivery-row.tsx';
import { Empty, Ghosts } from './page.tsx';
import { Lines, Table } from './table.tsx';
import { Command } from './values.tsx';

export function TailTable({
  rows,
  hrefOf,
  caption,
  empty,
  command,
  ghosts,
  hasReceiver = false,
}: {
  /** Undefined while they are loaded. */
  rows: readonly TailRow[] | undefined;
  hrefOf(id: number): string;
  caption: string;
  /** What to say without rows. */
  empty: string;
  /** The command to show then. */
  command?: () => string;
  /** Bars while loading. */
  ghosts?: number;
  /** Receiver and duration instead of the number of attempts. */
  hasReceiver?: boolean;
}) {
  if (rows === undefined)
    return (
      <div class="is-late">
        <Ghosts rows={ghosts} />
      </div>
    );
  if (rows.length === 0)
    return <Empty text={empty}>{command !== undefined && <Command text={command()} />}</Empty>;
  if (isSmall.value)
    return (
      <Lines>
        {rows.map(({ delivery, at }) => (
          <DeliveryLines key={delivery.id} delivery={delivery} href={hrefOf(delivery.id)} at={at} />
        ))}
      </Lines>
    );
  return (
    <Table caption={caption}>
      <thead>
        <tr>
          <DeliveryHeads hasReceiver={hasReceiver} />
          <th class="right">{hasReceiver ? texts.deliveries.answer : texts.deliveries.lastAnswer}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ delivery, at }) => (
          <DeliveryRow
            key={delivery.id}
            delivery={delivery}
            href={hrefOf(delivery.id)}
            at={at}
            hasReceiver={hasReceiver}
          />
        ))}
      </tbody>
    </Table>
  );
}
