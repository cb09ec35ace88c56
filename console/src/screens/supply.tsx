/**
 * The supply of the native coin: initial = circulating + locked + burned, the balances behind it, and how to check it. If the last two
 * exceed the first, the API says that none circulate.
 */
import { ApiError, callExact } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import type { Data, Exact } from '../api/types.ts';
import { formatAmount, formatMoney } from '../format/amount.ts';
import { Swatch } from '../parts/chart.tsx';
import { Figure, Figures } from '../parts/figures.tsx';
import { CopyCurl, Empty, Loading, PageHead } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { Address, Command, Copy, Time } from '../parts/values.tsx';
import { texts } from '../texts.ts';

type Info = Exact<Data<'GET /api/native/supply-info'>>;

const REFRESH_MS = 60_000;
const COIN_DECIMALS = 18;
/** Hundredths of a percent in one. */
const SCALE = 10_000n;
const BAR_HEIGHT = 12;

export function Supply() {
  const supply = useResource('supply', (signal) => callExact('GET /api/native/supply-info', { signal }), {
    everyMs: REFRESH_MS,
  });
  const { error, data } = supply.state.value;
  const isOff = data === undefined && error instanceof ApiError && error.status === 404;
  return (
    <>
      <PageHead title={texts.supply.title} note={texts.supply.note}>
        <CopyCurl operation="GET /api/native/supply-info" />
      </PageHead>
      {isOff ? (
        <Empty text={texts.supply.off} />
      ) : (
        <Loading loaded={supply.state.value} reload={supply.reload}>
          {(page) => <Picture info={page.data} />}
        </Loading>
      )}
    </>
  );
}

function Picture({ info }: { info: Info }) {
  const { cache, raw, summary, timestamp, methodology } = info;
  const unit = raw.units.native;
  const parts = [
    {
      name: texts.supply.circulating,
      wei: raw.circulating_supply_wei,
      coins: summary.circulating_supply_native,
      color: 1 as const,
    },
    {
      name: texts.supply.locked,
      wei: raw.locked_supply_wei,
      coins: summary.locked_supply_native,
      color: 3 as const,
    },
    {
      name: texts.supply.burned,
      wei: raw.burned_supply_wei,
      coins: summary.burned_supply_native,
      color: 4 as const,
    },
  ];
  const initial = BigInt(raw.initial_supply_wei);
  const sum = parts.reduce((total, { wei }) => total + BigInt(wei), 0n);
  const exceeds = sum > initial;
  const whole = exceeds ? sum : initial;
  const [sign, terms] = exceeds ? (['<', parts.slice(1)] as const) : (['=', parts] as const);
  let left = 0;
  const [, block] = / at block (\d+)/.exec(methodology.verification.how_to_verify) ?? [];
  // The note then names each balance that is of an earlier reading.
  const hasOlder = cache.note.includes(' left out: ');
  const rows = [...raw.locked_supply_breakdown, raw.burned_supply_breakdown];
  return (
    <>
      <Figures>
        <Figure
          label={texts.supply.initial}
          value={formatMoney(summary.initial_supply_native)}
          unit={unit}
          note={
            <>
              {texts.supply.readAt} <Time at={timestamp} />
            </>
          }
        />
        {parts.map(({ name, coins, wei }) => (
          <Figure
            key={name}
            label={name}
            value={formatMoney(coins)}
            unit={unit}
            note={`${shareText(wei, initial)} %`}
          />
        ))}
      </Figures>
      <section aria-labelledby="picture">
        <div class="section-head">
          <h2 id="picture">{exceeds ? texts.supply.excess : texts.supply.equation}</h2>
          <div class="actions legend">
            {parts.map(({ name, color }) => (
              <span key={name}>
                <Swatch color={color} />
                {name}
              </span>
            ))}
          </div>
        </div>
        <svg
          class="meter is-tall"
          viewBox={`0 0 100 ${BAR_HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={texts.supply.picture(
            parts.map(({ name, wei }) => `${name} ${shareText(wei, initial)} %`).join(', '),
          )}
        >
          {parts.map(({ name, wei, color }) => {
            const width = whole === 0n ? 0 : Number((BigInt(wei) * 1_000_000n) / whole) / 10_000;
            const x = left;
            left += width;
            return (
              <rect
                key={name}
                class={`c-${color}`}
                x={x}
                width={Math.max(wei === '0' ? 0 : 0.2, width - 0.15)}
                height={BAR_HEIGHT}
              />
            );
          })}
        </svg>
        <p class="below num">
          {`${formatAmount(raw.initial_supply_wei, COIN_DECIMALS)} ${sign} ${terms.map(({ wei }) => formatAmount(wei, COIN_DECIMALS)).join(' + ')} ${unit}`}
        </p>
      </section>
      <section aria-labelledby="balances">
        <div class="section-head">
          <h2 id="balances">{texts.supply.balances}</h2>
          {!hasOlder && <span>{texts.supply.oneBlock}</span>}
        </div>
        {hasOlder && <p class="prose is-warn">{cache.note}</p>}
        <Table caption={texts.supply.balances}>
          <thead>
            <tr>
              <th>{texts.supply.label}</th>
              <th>{texts.addresses.address}</th>
              <th class="right">{texts.supply.balance(unit)}</th>
              <th class="right">{texts.supply.share}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => (
              <tr key={`${one.label} ${one.address}`}>
                <th scope="row">{one.label}</th>
                <td>
                  <Address value={one.address} isLong isOwn />{' '}
                  <Copy text={one.address} label={texts.addresses.copy} />
                </td>
                <td class="right medium" title={`${one.balance_wei} ${texts.units}`}>
                  {formatAmount(one.balance_wei, COIN_DECIMALS, 6)}
                </td>
                <td class="right quiet">{shareText(one.balance_wei, initial)} %</td>
              </tr>
            ))}
          </tbody>
        </Table>
      </section>
      <section aria-labelledby="check">
        <div class="section-head">
          <h2 id="check">{texts.supply.check}</h2>
        </div>
        <p class="prose second">{methodology.formula}</p>
        <p class="prose second">{methodology.verification.how_to_verify}</p>
        <div class="below is-wide">
          <Command
            text={`cast balance ${rows[0]?.address ?? '0x…'}${block === undefined ? '' : ` --block ${block}`} --rpc-url $RPC_URL`}
          />
          <Command text={`curl -sS ${location.origin}/api/native/supply/circulating`} />
        </div>
      </section>
    </>
  );
}

/** The share with two decimals, cut. */
function shareText(wei: string, whole: bigint): string {
  if (whole === 0n) return texts.none;
  const hundredths = (BigInt(wei) * SCALE) / whole;
  const digits = hundredths.toString().padStart(3, '0');
  return `${digits.slice(0, -2)}.${digits.slice(-2)}`;
}
