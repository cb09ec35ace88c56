/**
 * Values as they look everywhere: times, addresses, amounts, durations, and the button that copies one.
 */
import { signal } from '@preact/signals';
import { assetOf } from '../api/chain.ts';
import { formatAmount, LIST_DECIMALS } from '../format/amount.ts';
import { formatAge } from '../format/number.ts';
import { longAddress, shortAddress } from '../format/short.ts';
import { formatCountdown, formatExact, formatInstant } from '../format/time.ts';
import { copyText } from '../state/clipboard.ts';
import { minute, now } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';

const COPIED_MS = 1_500;

/** An instant: the clock today, the day before that. The tooltip has both time zones. */
export function Time({ at }: { at: string | null | undefined }) {
  if (at === null || at === undefined) return <>{texts.none}</>;
  const ms = Date.parse(at);
  return (
    <time dateTime={at} title={`${formatExact(ms, 'utc')}\n${formatExact(ms, 'local')}`}>
      {formatInstant(ms, { ms: minute.value, zone: zone.value })}
    </time>
  );
}

/** How long ago an instant is: `4 s`, `3 h 12 min`. */
export function Age({ since }: { since: string | null | undefined }) {
  if (since === null || since === undefined) return <>{texts.none}</>;
  const ms = Date.parse(since);
  return (
    <time dateTime={since} title={formatExact(ms, 'utc')}>
      {formatAge(now.value - ms)}
    </time>
  );
}

/** Whether an instant is past by the server's clock, so that its Countdown says that it is due. */
export const isDue = (at: string): boolean => Date.parse(at) <= now.value;

/** The time until an instant by the server's clock. It never counts below zero. */
export function Countdown({ to }: { to: string | null | undefined }) {
  if (to === null || to === undefined) return <>{texts.none}</>;
  const leftMs = Date.parse(to) - now.value;
  return (
    <time dateTime={to} title={formatExact(Date.parse(to), 'utc')}>
      {leftMs <= 0 ? texts.dueNow : formatCountdown(leftMs)}
    </time>
  );
}

/** A short address or hash, with the whole one in the title. */
export function Address({
  value,
  isOwn = false,
  isLong = false,
}: {
  value: string;
  isOwn?: boolean;
  isLong?: boolean;
}) {
  if (value === '') return <span class="quiet">{texts.none}</span>;
  return (
    <span class={isOwn ? 'address is-own' : 'address'} title={value}>
      {isLong ? longAddress(value) : shortAddress(value)}
    </span>
  );
}

/** The amount of a list, cut to six decimals. */
export function amountText(
  amount: string,
  asset: string,
  decimalsMax = LIST_DECIMALS,
): { text: string; unit: string } {
  const { symbol, decimals, isKnown } = assetOf(asset);
  return { text: formatAmount(amount, decimals, decimalsMax), unit: isKnown ? symbol : texts.units };
}

/** The two cells of an amount, so that digits and units each stand in a column. */
export function AmountCells({ amount, asset }: { amount: string; asset: string }) {
  const { text, unit } = amountText(amount, asset);
  return (
    <>
      <td class="amount" title={`${amount} ${texts.units}`}>
        {text}
      </td>
      <td class="unit" title={unit === asset ? asset : `${unit}\n${asset}`}>
        {unit}
      </td>
    </>
  );
}

export function Transfer({
  sender,
  receiver,
  own,
}: {
  sender: string;
  receiver: string;
  own?: string | undefined;
}) {
  return (
    <>
      <Address value={sender} isOwn={isSame(sender, own)} />
      <span class="receiving">
        <span class="to">
          <span aria-hidden="true">→</span>
          <span class="hidden">{texts.to}</span>
        </span>
        <Address value={receiver} isOwn={isSame(receiver, own)} />
      </span>
    </>
  );
}

export const isSame = (one: string, other: string | undefined): boolean =>
  one.toLowerCase() === other?.toLowerCase();

const copied = signal<string | undefined>(undefined);

/** Copies a text. With `children` it is a labeled button. */
export function Copy({
  text,
  label,
  children,
}: {
  text: string | (() => string);
  label: string;
  children?: string;
}) {
  const id = `${label} ${typeof text === 'string' ? text : ''}`;
  const isDone = copied.value === id;
  const copy = async (event: MouseEvent) => {
    event.preventDefault();
    event.stopPropagation();
    await copyText(typeof text === 'string' ? text : text());
    copied.value = id;
    setTimeout(() => {
      if (copied.value === id) copied.value = undefined;
    }, COPIED_MS);
  };
  if (children === undefined)
    return (
      <button
        type="button"
        class="icon-button is-inline"
        aria-label={label}
        title={label}
        onClick={(event) => void copy(event)}
      >
        <Icon name={isDone ? 'check' : 'copy'} />
      </button>
    );
  return (
    <button type="button" class="button is-quiet" onClick={(event) => void copy(event)}>
      <Icon name={isDone ? 'check' : 'copy'} />
      {children}
    </button>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code>{text}</code>
      <Copy text={text} label={texts.copyCommand} />
    </div>
  );
}
