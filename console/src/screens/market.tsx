/**
 * Prices with the sources behind them, and the swap pairs.
 */
import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import { chain, status } from '../api/chain.ts';
import { callExact } from '../api/client.ts';
import { type Loaded, useResource } from '../api/resource.ts';
import type { Data, Exact, Status } from '../api/types.ts';
import { formatAmount, formatMoney, formatPrice } from '../format/amount.ts';
import { CopyCurl, Empty, Loading, PageHead } from '../parts/page.tsx';
import { State } from '../parts/state.tsx';
import { LinkRow, Table } from '../parts/table.tsx';
import { Age } from '../parts/values.tsx';
import { onServer } from '../state/clock.ts';
import { texts } from '../texts.ts';

export type Pair = Exact<Data<'GET /api/swap/pairs'>>[number];
type Price = NonNullable<Status['prices']>[number];
/** The facts of a price from any source. */
type KnownPrice = Pick<Price, 'asset' | 'price' | 'stale' | 'age_seconds'>;

const REFRESH_MS = 30_000;
/** The pair whose price, times that of the native coin, is the price of the reward token (specification, price API). */
const REWARD_PAIR = '1';

/** The token that prices of the pair are in, which also determines its USD value, and the token that they are of. */
export function unitsOf({ name, usd_value_from: from }: Pick<Pair, 'name' | 'usd_value_from'>): {
  unit: string;
  of: string;
} {
  const [first = '', second = ''] = name.split('/');
  return from === '0' ? { unit: first, of: second } : { unit: second, of: first };
}

/** The status, with the last known prices and their time while the service can't read any. */
function usePrices(): Loaded<Status & { prices: Price[] }> {
  const loaded = status.state.value;
  const known = useRef<{ prices: Price[]; at: number | undefined }>({ prices: [], at: undefined });
  const { data, at } = loaded;
  if (data === undefined) return { ...loaded, data };
  if (data.prices !== null) known.current = { prices: data.prices, at };
  return { ...loaded, data: { ...data, prices: known.current.prices }, at: known.current.at };
}

export function Market() {
  const pairs = useResource('pairs', (signal) => callExact('GET /api/swap/pairs', { signal }), {
    everyMs: REFRESH_MS,
  });
  const prices = usePrices();
  const areOld = prices.error !== undefined || prices.at !== status.state.value.at;
  const hasFeeds = chain.state.value.data?.has.prices !== false;
  return (
    <>
      <PageHead title={texts.market.title} note={texts.market.note}>
        <CopyCurl operation="GET /api/swap/pairs" />
      </PageHead>
      <section aria-labelledby="prices">
        <div class="section-head">
          <h2 id="prices">{texts.market.prices}</h2>
          <span>{texts.market.pricesNote}</span>
        </div>
        <Loading loaded={prices} isOld={areOld} reload={status.reload}>
          {(data) =>
            data.prices.length === 0 ? (
              <Empty
                text={
                  hasFeeds && data.problem !== null
                    ? texts.market.noPricesNow(data.problem.message)
                    : texts.market.noPrices
                }
              />
            ) : (
              <Prices
                prices={data.prices}
                readAt={onServer(prices.at ?? 0)}
                areOld={areOld}
                pairs={pairs.state.value.data?.data}
              />
            )
          }
        </Loading>
      </section>
      <section aria-labelledby="pairs">
        <div class="section-head">
          <h2 id="pairs">{texts.market.pairs}</h2>
        </div>
        <Loading loaded={pairs.state.value} reload={pairs.reload}>
          {({ data }) => (data.length === 0 ? <Empty text={texts.market.noPairs} /> : <Pairs pairs={data} />)}
        </Loading>
      </section>
    </>
  );
}

function Prices({
  prices,
  readAt,
  areOld,
  pairs,
}: {
  prices: readonly Price[];
  readAt: number;
  areOld: boolean;
  pairs: readonly Pair[] | undefined;
}) {
  const { state } = useResource('reward price', loadRewardPrice, { everyMs: REFRESH_MS });
  const { data: reward, at: rewardAt = 0, error } = state.value;
  const rewardPair = pairs?.find(({ id }) => id === REWARD_PAIR);
  return (
    <Table caption={texts.market.prices}>
      <thead>
        <tr>
          <th>{texts.market.asset}</th>
          <th>{texts.deliveries.state}</th>
          <th class="right">{texts.market.usd}</th>
          <th class="right">{texts.market.age}</th>
          <th>{texts.market.sources}</th>
        </tr>
      </thead>
      <tbody>
        {prices.map((price) => (
          <PriceRow key={price.asset} price={price} readAt={readAt} isOld={areOld}>
            <Sources sources={price.sources} />
          </PriceRow>
        ))}
        {reward !== undefined && reward.price !== null && rewardPair !== undefined && (
          <PriceRow price={reward} readAt={onServer(rewardAt)} isOld={error !== undefined}>
            {texts.market.byPair(rewardPair.name)}
          </PriceRow>
        )}
      </tbody>
    </Table>
  );
}

async function loadRewardPrice(signal: AbortSignal): Promise<KnownPrice> {
  const { data, headers } = await callExact('GET /api/price/reward', { signal });
  const age = headers.get('chainbell-price-age');
  return {
    ...{ asset: data.asset, price: data.price, stale: headers.get('chainbell-price-stale') === 'true' },
    // The answer may come from a cache.
    age_seconds: age === null ? null : Number(age) + Number(headers.get('age') ?? 0),
  };
}

/** `readAt`: when the price had its age. `children`: what it comes from. */
function PriceRow({
  price,
  readAt,
  isOld,
  children,
}: {
  price: KnownPrice;
  readAt: number;
  isOld: boolean;
  children: ComponentChildren;
}) {
  const { age_seconds: age } = price;
  return (
    <tr>
      <th scope="row" class="medium">
        {price.asset}
      </th>
      <td>
        {isOld ? (
          <State icon="retrying" tone="is-warn" word={texts.market.notReadNow} />
        ) : (
          <PriceState price={price} />
        )}
      </td>
      <td class="right medium">{price.price === null ? texts.none : formatPrice(price.price)}</td>
      <td class="right quiet">
        <Age since={age === null ? null : new Date(readAt - age * 1000).toISOString()} />
      </td>
      <td class="second sources">{children}</td>
    </tr>
  );
}

const Sources = ({ sources }: Pick<Price, 'sources'>) => (
  <>
    {sources.map((source) => (
      <span key={source.source}>
        {source.source}{' '}
        <b class={source.verdict === 'used' ? 'is-ok' : 'is-warn'}>{texts.market.verdicts[source.verdict]}</b>
        {source.message !== null && (
          <small class="reason" title={source.message}>
            {failureOf(source.message)}
          </small>
        )}
      </span>
    ))}
  </>
);

/** Errors of connections in words. The service words all others itself. */
const failureOf = (message: string): string =>
  texts.market.sourceFailures.find(([pattern]) => pattern.test(message))?.[1] ?? message;

export function PriceState({ price }: { price: KnownPrice }) {
  if (price.price === null) return <State icon="failing" tone="is-bad" word={texts.market.missing} />;
  if (price.stale) return <State icon="retrying" tone="is-warn" word={texts.market.stale} />;
  return <State icon="delivered" tone="is-ok" word={texts.market.fresh} />;
}

function Pairs({ pairs }: { pairs: readonly Pair[] }) {
  const native = chain.state.value.data?.native_symbol ?? '';
  const states = status.state.value.data?.pairs ?? [];
  return (
    <Table caption={texts.market.pairs}>
      <thead>
        <tr>
          <th>{texts.market.pair}</th>
          <th class="right">{texts.market.price}</th>
          <th class="right">{texts.market.volume}</th>
          <th class="right">{texts.market.lp}</th>
          <th class="right second-rank">{texts.market.reserves}</th>
          <th>{texts.market.check}</th>
          <th class="right third-rank">{texts.market.updated}</th>
        </tr>
      </thead>
      <tbody>
        {pairs.map((pair) => {
          const [first = '', second = native] = pair.name.split('/');
          const state = states.find(({ id }) => String(id) === pair.id);
          return (
            <LinkRow key={pair.id}>
              <th scope="row">
                <a class="row-link medium" href={`/console/market/${pair.id}`}>
                  {pair.name}
                </a>
              </th>
              <td class="right">
                {pair.latestPrice === null
                  ? texts.none
                  : `${formatPrice(pair.latestPrice)} ${unitsOf(pair).unit}`}
              </td>
              <td class="right medium">
                ${formatMoney(pair.vol24h)}
                {state?.volume_complete === false && <span class="is-warn"> {texts.market.incomplete}</span>}
              </td>
              <td class="right">
                {pair.lpPriceInUsd === null ? texts.none : `$${formatMoney(pair.lpPriceInUsd)}`}
              </td>
              <td class="right quiet second-rank">
                {pair.reserve0 === null || pair.reserve1 === null
                  ? texts.none
                  : `${formatMoney(formatAmount(pair.reserve0, Number(pair.token0_decimals)).replaceAll(',', ''))} ${first} · ${formatMoney(formatAmount(pair.reserve1, Number(pair.token1_decimals)).replaceAll(',', ''))} ${second}`}
              </td>
              <td>
                {state === undefined || state.price_deviation === null ? (
                  <span class="quiet">{texts.market.unchecked}</span>
                ) : state.deviates ? (
                  <State icon="failing" tone="is-bad" word={texts.market.deviates} />
                ) : (
                  <State icon="delivered" tone="is-ok" word={texts.market.agrees} />
                )}
              </td>
              <td class="right quiet third-rank">
                <Age since={pair.updated_at} /> {pair.updated_at !== null && texts.ago}
              </td>
            </LinkRow>
          );
        })}
      </tbody>
    </Table>
  );
}
