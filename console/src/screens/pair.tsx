/**
 * A swap pair: price, volume and value, and how they went by the hour.
 */
import { useRoute } from 'preact-iso';
import { chain, status } from '../api/chain.ts';
import { callExact } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import { formatAmount, formatMoney, formatPrice } from '../format/amount.ts';
import { Figure, Figures } from '../parts/figures.tsx';
import { Choice, CopyCurl, Loading, Missing, PageHead, usePageQuery } from '../parts/page.tsx';
import { Address, Age, Copy } from '../parts/values.tsx';
import { texts } from '../texts.ts';
import { type Pair, PriceState, unitsOf } from './market.tsx';
import { History, type Hour, type Shown, seriesOf } from './pair-history.tsx';
import { Swaps } from './pair-swaps.tsx';

const REFRESH_MS = 30_000;
const HOURS = { '24h': 24, '7d': 168, '30d': 720 } as const;
type Span = keyof typeof HOURS;

const HOUR_MS = 3_600_000;

export function PairPage() {
  const { params } = useRoute();
  const { query, hrefWith } = usePageQuery();
  const id = params.id ?? '';
  const shown: Shown = query.show === 'value' ? 'value' : 'price';
  const span: Span = query.span === '24h' || query.span === '30d' ? query.span : '7d';
  const pairs = useResource('pairs', (signal) => callExact('GET /api/swap/pairs', { signal }), {
    everyMs: REFRESH_MS,
  });
  const history = useResource(
    `pair history ${id} ${span}`,
    (signal) => loadHistory(id, HOURS[span], signal),
    { everyMs: REFRESH_MS },
  );
  return (
    <Loading loaded={pairs.state.value} reload={pairs.reload}>
      {({ data }) => {
        const pair = data.find((one) => one.id === id);
        if (pair === undefined)
          return (
            <Missing
              title={texts.notFound.title}
              text={texts.market.unknown(id)}
              href="/console/market"
              back={texts.market.back}
            />
          );
        return (
          <>
            <PageHead
              title={pair.name}
              note={
                <a class="link" href="/console/market">
                  {texts.market.title}
                </a>
              }
            >
              <Choice
                label={texts.period}
                value={span}
                hrefOf={(value) => hrefWith({ span: value === '7d' ? undefined : value })}
                options={Object.keys(HOURS).map((value) => ({
                  value,
                  text: texts.market.spans[value as Span],
                }))}
              />
              <CopyCurl
                operation={`GET /api/swap/${shown}-history/{pair_id}`}
                options={{ path: { pair_id: id }, query: { limit: String(HOURS[span]) } }}
              />
            </PageHead>
            <Summary pair={pair} />
            <div class="columns">
              <section aria-labelledby="by-hour">
                <Loading loaded={history.state.value} reload={history.reload}>
                  {(hours) => (
                    <History hours={hours} series={seriesOf(shown, pair)} span={texts.market.spans[span]}>
                      <Choice
                        label={texts.market.shown}
                        value={shown}
                        hrefOf={(value) => hrefWith({ show: value === 'price' ? undefined : value })}
                        options={[
                          { value: 'price', text: texts.market.price },
                          { value: 'value', text: texts.market.value },
                        ]}
                      />
                    </History>
                  )}
                </Loading>
              </section>
              <Facts pair={pair} />
            </div>
            <Swaps pair={pair} />
          </>
        );
      }}
    </Loading>
  );
}

/**
 * Prices, values and volumes by the hour, oldest first, with hours without swaps in between. Nothing is known of hours in which
 * the pair wasn't followed.
 */
async function loadHistory(id: string, count: number, signal: AbortSignal): Promise<Hour[]> {
  const options = { path: { pair_id: id }, query: { limit: String(count) }, signal };
  const [prices, values, volumes] = await Promise.all([
    callExact('GET /api/swap/price-history/{pair_id}', options),
    callExact('GET /api/swap/value-history/{pair_id}', options),
    callExact('GET /api/swap/volume-history/{pair_id}', options),
  ]);
  const priceAt = new Map(prices.data.map(({ hour, price }) => [Date.parse(hour), price]));
  const valueAt = new Map(values.data.map((one) => [Date.parse(one.hour), one]));
  const volumeAt = new Map(volumes.data.map((one) => [Date.parse(one.hour), one]));
  const known = [...priceAt.keys(), ...valueAt.keys(), ...volumeAt.keys()];
  if (known.length === 0) return [];
  const last = Math.max(...known);
  const first = Math.max(Math.min(...known), last - (count - 1) * HOUR_MS);
  let price: string | null = null;
  return Array.from({ length: (last - first) / HOUR_MS + 1 }, (_, index) => {
    const at = first + index * HOUR_MS;
    const value = valueAt.get(at);
    // In an hour without swaps, the pool keeps its price as long as it is followed.
    const isFollowed = value?.reserves_known !== false;
    // Null is an hour at whose end the pool had no price.
    const priced = priceAt.get(at);
    price = priced !== undefined ? priced : isFollowed ? price : null;
    const traded = volumeAt.get(at) ?? (isFollowed ? { volume: '0', swaps: '0' } : undefined);
    return {
      hour: new Date(at).toISOString(),
      price,
      value: value?.value ?? null,
      volume: traded?.volume ?? null,
      swaps: traded === undefined ? null : Number(traded.swaps),
    };
  });
}

function Summary({ pair }: { pair: Pair }) {
  const [first = '', second = ''] = pair.name.split('/');
  const state = status.state.value.data?.pairs?.find(({ id }) => String(id) === pair.id);
  return (
    <Figures>
      <Figure
        label={texts.market.pricePer(unitsOf(pair).unit, unitsOf(pair).of)}
        value={pair.latestPrice === null ? undefined : formatPrice(pair.latestPrice)}
        note={
          pair.updated_at === null ? (
            texts.market.notRead
          ) : (
            <>
              {texts.market.readBefore} <Age since={pair.updated_at} /> {texts.ago}
            </>
          )
        }
      />
      <Figure
        label={texts.market.volume}
        value={`$${formatMoney(pair.vol24h)}`}
        note={state?.volume_complete === false ? texts.market.incompleteNote : ''}
        tone={state?.volume_complete === false ? 'is-warn' : ''}
      />
      <Figure
        label={texts.market.oneLp}
        value={pair.lpPriceInUsd === null ? undefined : `$${formatMoney(pair.lpPriceInUsd)}`}
        note={pair.lpPriceInUsd === null ? texts.market.noLp : texts.market.fair}
      />
      <Figure
        label={texts.market.reserves}
        value={
          pair.reserve0 === null
            ? undefined
            : formatMoney(formatAmount(pair.reserve0, Number(pair.token0_decimals)).replaceAll(',', ''))
        }
        unit={first}
        note={
          pair.reserve1 === null
            ? ''
            : `${formatAmount(pair.reserve1, Number(pair.token1_decimals), 4)} ${second}`
        }
      />
    </Figures>
  );
}

function Facts({ pair }: { pair: Pair }) {
  const [first = '', second = ''] = pair.name.split('/');
  const { unit: valued } = unitsOf(pair);
  const price = status.state.value.data?.prices?.find(
    ({ asset }) => asset.toLowerCase() === valued.toLowerCase(),
  );
  return (
    <section aria-labelledby="pair-facts">
      <h2 id="pair-facts">{texts.address.facts}</h2>
      <dl class="facts">
        <dt>{texts.market.contract}</dt>
        <dd>
          <Address value={pair.address} isLong />{' '}
          <Copy text={pair.address} label={texts.market.copyContract} />
        </dd>
        <dt>token0</dt>
        <dd>
          {texts.market.tokenFact(first, pair.token0_decimals)}{' '}
          <Copy text={pair.token0} label={texts.market.copyToken(first)} />
        </dd>
        <dt>token1</dt>
        <dd>
          {texts.market.tokenFact(second, pair.token1_decimals)}{' '}
          <Copy text={pair.token1} label={texts.market.copyToken(second)} />
        </dd>
        <dt>{texts.market.valueFrom}</dt>
        <dd>{valued}</dd>
        {price !== undefined && (
          <>
            <dt>{texts.market.priceOf(valued)}</dt>
            <dd>
              <PriceState price={price} />
              {price.price !== null && <span class="second">${formatPrice(price.price)}</span>}
            </dd>
          </>
        )}
        <dt>{texts.market.pool}</dt>
        <dd>{pair.reward_pid}</dd>
        <dt>{texts.market.network}</dt>
        <dd>{chain.state.value.data?.name ?? texts.none}</dd>
      </dl>
    </section>
  );
}
