/**
 * Prints a repair plan: the step for each difference, what the receiver may have seen, and what it will be sent.
 */
import type { Difference, WrongNotification } from '../audit/compare.ts';
import { printableLines } from '../core/terminal-text.ts';
import type { Repair } from '../store/audit/apply-repairs.ts';

/** Without this flag, a repair doesn't send a transfer that the receiver may have credited under another id. */
export const DOUBLE_CREDIT_FLAG = '--allow-double-credit';

/** The steps that end this difference. */
export function stepsOf({ repairs = [], told }: Difference): string {
  return repairs.length === 0
    ? 'cannot repair'
    : repairs.map((repair) => nameOf(repair, told)).join(', then ');
}

function nameOf(repair: Repair, told: WrongNotification | undefined): string {
  switch (repair.action) {
    case 'create':
      return 'create and deliver';
    case 'orphan':
      return told === undefined ? 'mark as orphaned' : orphanSteps[told.fate];
    case 'update':
      return repair.isRescheduled ? 'reschedule' : 'correct block';
    case 'recompute_volume':
    case 'recompute_day':
    case 'recompute_month':
      return 'recompute';
  }
}

const orphanSteps = {
  unseen: 'withdraw',
  taken_back: 'send removal notice',
  kept: 'mark as orphaned',
} as const satisfies Record<WrongNotification['fate'], string>;

/** Says what the receiver may have seen already; undefined if no wrong notification is stored. */
function toldText({ told, amount }: Difference): string | undefined {
  if (told === undefined) return undefined;
  const { id, acknowledgedAt, state, fate } = told;
  if (fate === 'unseen') return `notification ${id} was not sent`;
  const seen =
    state === 'processed'
      ? `the receiver acknowledged notification ${id}${acknowledgedAt === undefined ? '' : ` at ${acknowledgedAt.toISOString()}`}`
      : `the receiver may have seen notification ${id}, but did not acknowledge it`;
  const right =
    amount === undefined || amount === told.amount
      ? ''
      : `, or amount ${amount} if the row was changed after it was sent`;
  return `${seen}; what was sent is not stored: amount ${told.amount} as the row says now${right}`;
}

/** Says what the receiver will be sent and how that affects its books; undefined if no wrong notification is stored. */
function sendsText({ told, amount, repairs = [] }: Difference): string | undefined {
  if (told === undefined || repairs.length === 0) return undefined;
  const right = amount === undefined ? undefined : `amount ${amount} under a new id`;
  switch (told.fate) {
    case 'unseen':
      return right ?? 'nothing';
    case 'taken_back': {
      const notice = `removal notice ${told.id}-${told.noticeRevision} until a 2xx`;
      return right === undefined ? notice : `${notice}, and ${right}`;
    }
    case 'kept': {
      const why = `without the setting "removed", notification ${told.id} can't be taken back`;
      if (right === undefined) return `nothing more: ${why}. Correct the receiver's books by hand`;
      return `${right}, only with ${DOUBLE_CREDIT_FLAG}: ${why}. A receiver that credits each id once then has both credits`;
    }
  }
}

/** One line of the plan and its details, or one line of JSON. */
export function planLines(difference: Difference, isJson: boolean): string {
  const { kind, block, message, notification, told, amount, mayCreditTwice = false } = difference;
  const [step, toldLine, sendsLine] = [stepsOf(difference), toldText(difference), sendsText(difference)];
  if (!isJson) {
    const details = [
      ...(toldLine === undefined ? [] : [`  told: ${toldLine}`]),
      ...(sendsLine === undefined ? [] : [`  sends: ${sendsLine}`]),
    ];
    return printableLines([`${step}: ${message}`, ...details]);
  }
  const fields = {
    ...{ repair: step, difference: kind, block },
    ...(notification && { id: notification.id, watched_addresses_id: notification.watchedAddressId }),
    message,
    ...(told && {
      told: {
        ...{ id: told.id, amount: String(told.amount), is_acknowledged: told.state === 'processed' },
        ...{ acknowledged_at: told.acknowledgedAt?.toISOString() ?? null, fate: told.fate, text: toldLine },
      },
    }),
    ...(sendsLine !== undefined && {
      sends: { amount: amount === undefined ? null : String(amount), text: sendsLine },
    }),
    ...(mayCreditTwice && { needs: DOUBLE_CREDIT_FLAG }),
  };
  return `${JSON.stringify(fields)}\n`;
}
