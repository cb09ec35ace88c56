/**
 * States as shape, word and color, in this order of importance.
 */
import type { Delivery, DeliveryStatus, Receiver } from '../api/types.ts';
import { texts } from '../texts.ts';
import { Icon, type IconName } from './icon.tsx';

type Look = { icon: IconName; tone: '' | 'is-ok' | 'is-warn' | 'is-bad' | 'is-busy' };

const deliveryLooks: Record<DeliveryStatus, Look> = {
  waiting: { icon: 'waiting', tone: '' },
  sending: { icon: 'sending', tone: 'is-busy' },
  retrying: { icon: 'retrying', tone: 'is-warn' },
  failing: { icon: 'failing', tone: 'is-bad' },
  delivered: { icon: 'delivered', tone: 'is-ok' },
  held: { icon: 'held', tone: '' },
  orphaned: { icon: 'orphaned', tone: 'is-warn' },
  cancelled: { icon: 'cancelled', tone: '' },
};

export const lookOf = (status: DeliveryStatus): Look => deliveryLooks[status];

export function DeliveryState({ status }: { status: DeliveryStatus }) {
  const { icon, tone } = deliveryLooks[status];
  return <State icon={icon} tone={tone} word={texts.states[status]} />;
}

type ReceiverCondition = Receiver['state'] | 'unused';
const receiverLooks: Record<ReceiverCondition, Look> = {
  ok: { icon: 'delivered', tone: 'is-ok' },
  unused: { icon: 'waiting', tone: '' },
  failing: { icon: 'failing', tone: 'is-bad' },
  hung: { icon: 'hung', tone: 'is-bad' },
  suspended: { icon: 'suspended', tone: '' },
};

/** The state of a receiver, except that one without attempts in the period of its statistics is not known to be healthy. */
export const conditionOf = ({ state, statistics }: Receiver): ReceiverCondition =>
  state === 'ok' && statistics === null ? 'unused' : state;

export function receiverLook(receiver: Receiver): Look & { word: string } {
  const condition = conditionOf(receiver);
  return { ...receiverLooks[condition], word: texts.receiverStates[condition] };
}

export function State({ icon, tone, word }: Look & { word: string }) {
  return (
    <span class={`state ${tone}`}>
      <Icon name={icon} />
      {word}
    </span>
  );
}

/** The last answer of a delivery in a few characters: `204`, `503`, `timeout`, `7 of 12 confirmed`. */
export function answerOf(
  delivery: Pick<Delivery, 'status' | 'confirmations' | 'confirmations_needed' | 'last_attempt'>,
): {
  text: string;
  tone: string;
} {
  const { status, confirmations, confirmations_needed: needed, last_attempt: attempt } = delivery;
  if (status === 'held' && needed !== null && confirmations !== null)
    return { text: texts.confirmed(confirmations, needed), tone: 'second' };
  if (attempt === null || attempt === undefined) return { text: texts.none, tone: 'quiet' };
  const text = attempt.status === null ? texts.shortOutcome(attempt.outcome) : String(attempt.status);
  const isWaiting = status === 'failing' || status === 'retrying';
  return { text, tone: attempt.outcome === 'success' ? '' : isWaiting ? lookOf(status).tone : 'is-warn' };
}
