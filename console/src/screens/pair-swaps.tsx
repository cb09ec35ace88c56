/**
 * The newest swaps of a pair.
 */
import { callExact } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import { formatAmount, formatMoney, groupDigits, LIST_DECIMALS } from '../format/amount.ts';
import { Icon } from '../parts/icon.tsx';
import { Empty, Loading } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { Address, Copy, Time } from '../parts/values.tsx';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import type { Pair } from './market.tsx';

const REFRESH_MS = 15_000;
const ROWS = '50';

export function Swaps({ pair }: { pair: Pair }) {
  const swaps = useResource(
    `swaps ${pair.id}`,
    (signal) =>
      callExact('GET /api/swap/swaps/{pair_id}', {
        path: { pair_id: pair.id },
        query: { limit: ROWS },
        signal,
      }),
    { everyMs: REFRESH_MS },
  );
  const [first = '', second = ''] = pair.name.split('/');
  return (
    <section aria-labelledby="swaps">
      <div class="section-head">
        <h2 id="swaps">{texts.market.swapsTitle}</h2>
        <span>{texts.newestFirst}</span>
      </div>
      <Loading loaded={swaps.state.value} reload={swaps.reload}>
        {({ data }) =>
          data.length === 0 ? (
            <Empty text={texts.market.noSwaps} />
          ) : (
            <Table caption={texts.market.swapsTitle}>
              <thead>
                <tr>
                  <th>{texts.timeIn(zone.value)}</th>
                  <th>{texts.market.side}</th>
                  <th class="amount">{first}</th>
                  <th class="right">{second}</th>
                  <th class="right">{texts.market.value}</th>
                  <th>{texts.delivery.transaction}</th>
                  <th class="right second-rank">{texts.delivery.block}</th>
                </tr>
              </thead>
              <tbody>
                {data.map((swap) => {
                  // Both amounts may be on both sides, such as when a flash swap gives back what it has borrowed.
                  const paid0 = BigInt(swap.amount0_in) - BigInt(swap.amount0_out);
                  const paid1 = BigInt(swap.amount1_in) - BigInt(swap.amount1_out);
                  const buys = paid0 < 0n;
                  return (
                    <tr key={`${swap.hash} ${swap.ordinal}`}>
                      <td class="quiet">
                        <Time at={swap.mined_at} />
                      </td>
                      <td>
                        <span class="state">
                          <Icon name={buys ? 'up' : 'down'} />
                          {buys ? texts.market.buy(first) : texts.market.sell(first)}
                        </span>
                      </td>
                      <td class="amount">
                        {formatAmount(sizeOf(paid0), Number(pair.token0_decimals), LIST_DECIMALS)}
                      </td>
                      <td class="right medium">
                        {formatAmount(sizeOf(paid1), Number(pair.token1_decimals), LIST_DECIMALS)}
                      </td>
                      <td class="right">
                        {swap.usd_value === null ? texts.none : `$${formatMoney(swap.usd_value)}`}
                      </td>
                      <td>
                        <Address value={swap.hash} />{' '}
                        <Copy text={swap.hash} label={texts.delivery.copyHash} />
                      </td>
                      <td class="right mono second-rank">#{groupDigits(swap.block_number)}</td>
                    </tr>
                  );
                })}
              </tbody>
            </Table>
          )
        }
      </Loading>
    </section>
  );
}

const sizeOf = (paid: bigint): string => String(paid < 0n ? -paid : paid);
