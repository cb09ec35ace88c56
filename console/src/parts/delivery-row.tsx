/**
 * One delivery in a list: as a row of a table, or as two lines on a small screen.
 */

import type { ComponentChildren } from 'preact';
import type { Delivery, EventDelivery } from '../api/types.ts';
import { watcherOf } from '../api/watcher-names.ts';
import { formatAttempt, formatCount } from '../format/number.ts';
import { hostOf } from '../format/short.ts';
import { zone } from '../state/preferences.ts';
import { showsAll } from '../state/session.ts';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';
import { answerOf, DeliveryState, lookOf } from './state.tsx';
import { LinkRow } from './table.tsx';
import { Address, AmountCells, amountText, Countdown, isDue, isSame, Time, Transfer } from './values.tsx';

/** The fields that a row shows: those of the stream's events, and more from the log. */
export type RowDelivery = EventDelivery &
  Pick<Delivery, 'id' | 'confirmations' | 'confirmations_needed' | 'last_attempt'> & {
    watcher_id?: number;
    watcher?: string;
    attempts?: number;
  };

/** The heads of a DeliveryRow's columns, between those of the pick and of the answer. */
export function DeliveryHeads({ hasReceiver }: { hasReceiver: boolean }) {
  return (
    <>
      <th>{texts.deliveries.state}</th>
      <th>{texts.timeIn(zone.value)}</th>
      {showsAll.value && <th class="second-rank">{texts.watcherChoice.label}</th>}
      <th class="amount">{texts.deliveries.amount}</th>
      <th>
        <span class="hidden">{texts.deliveries.unit}</span>
      </th>
      <th>{texts.deliveries.fromTo}</th>
      {hasReceiver ? (
        <th class="fourth-rank">{texts.deliveries.receiver}</th>
      ) : (
        <th class="right second-rank">{texts.deliveries.attempts}</th>
      )}
    </>
  );
}

type RowProps = {
  delivery: RowDelivery;
  href: string;
  isCurrent?: boolean;
  /** The time of the last attempt instead of the creation. */
  at?: string;
  pick?: ComponentChildren;
  hasReceiver?: boolean;
};

export function DeliveryRow({ delivery, href, isCurrent = false, at, pick, hasReceiver = false }: RowProps) {
  const { text, tone } = answerOf(delivery);
  const { last_attempt: attempt } = delivery;
  return (
    <LinkRow isCurrent={isCurrent}>
      {pick !== undefined && <td class="pick">{pick}</td>}
      <td>
        <a class="row-link" href={href}>
          <DeliveryState status={delivery.status} />
          <span class="hidden"> {texts.deliveries.open(delivery.id)}</span>
        </a>
      </td>
      <td class="quiet">
        <Time at={at ?? delivery.created_at} />
      </td>
      {showsAll.value && (
        <td class="second second-rank name" title={watcherOf(delivery)}>
          {watcherOf(delivery) ?? texts.none}
        </td>
      )}
      <AmountCells amount={delivery.amount} asset={delivery.asset} />
      <td class="transfer">
        <Transfer
          sender={delivery.sender}
          receiver={delivery.receiver}
          own={delivery.watched_address ?? undefined}
        />
      </td>
      {hasReceiver ? (
        <td class="second long fourth-rank" title={delivery.origin ?? undefined}>
          {delivery.origin === null ? texts.none : hostOf(delivery.origin)}
        </td>
      ) : (
        <td class="right second-rank">
          {formatCount(delivery.retry_count + (delivery.status === 'delivered' ? 1 : 0))}
        </td>
      )}
      <td class={`right ${tone}`}>
        {text}
        {hasReceiver && attempt !== null && attempt !== undefined && (
          <span class="quiet"> · {formatAttempt(attempt.duration_ms)}</span>
        )}
      </td>
    </LinkRow>
  );
}

/** The same in two lines: amount and time, then counterparty and answer. */
export function DeliveryLines({ delivery, href, at }: Pick<RowProps, 'delivery' | 'href' | 'at'>) {
  const { icon, tone } = lookOf(delivery.status);
  const own = delivery.watched_address ?? undefined;
  const isOut = isSame(delivery.sender, own);
  const isIn = isSame(delivery.receiver, own);
  const { text: amount, unit } = amountText(delivery.amount, delivery.asset);
  const answer = answerOf(delivery);
  const isWaiting = delivery.status === 'failing' || delivery.status === 'retrying';
  return (
    <li>
      <a class="row-link" href={href}>
        <Icon name={icon} tone={tone} />
        <b class="amount">
          <span class="hidden">{texts.states[delivery.status]}: </span>
          {isOut ? '−' : isIn ? '+' : ''}
          {amount} <span>{unit}</span>
        </b>
        <Time at={at ?? delivery.created_at} />
        <span class="below-line wraps">
          <span>
            {showsAll.value && `${watcherOf(delivery) ?? texts.none} · `}
            {isOut ? texts.to : texts.fromLower}{' '}
            <Address value={isOut ? delivery.receiver : delivery.sender} />
          </span>
          <span class={answer.tone}>
            {answer.text}
            {isWaiting && delivery.next_retry_at !== null && (
              <>
                {' '}
                · {texts.next(isDue(delivery.next_retry_at))} <Countdown to={delivery.next_retry_at} />
              </>
            )}
            {!isWaiting && delivery.last_attempt !== null && delivery.last_attempt !== undefined && (
              <> · {formatAttempt(delivery.last_attempt.duration_ms)}</>
            )}
          </span>
        </span>
      </a>
    </li>
  );
}
