/**
 * One delivery: the transfer, its block, the attempts as a time line, and the exact message.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { useAttempt } from '../api/attempt.ts';
import { assetOf } from '../api/chain.ts';
import { call } from '../api/client.ts';
import { type Resource, useResource } from '../api/resource.ts';
import { followAttempts } from '../api/stream.ts';
import type { DeliveryDetail } from '../api/types.ts';
import { watcherOf } from '../api/watcher-names.ts';
import { formatAmount, groupDigits } from '../format/amount.ts';
import { formatCount } from '../format/number.ts';
import { withoutScheme } from '../format/short.ts';
import { Icon } from '../parts/icon.tsx';
import { MessageBody } from '../parts/message-body.tsx';
import { CopyCurl, Failed, Ghosts } from '../parts/page.tsx';
import { Problem } from '../parts/problem.tsx';
import { DeliveryState, State } from '../parts/state.tsx';
import { attemptCountOf, canDeliverNow, TimeLine } from '../parts/time-line.tsx';
import { Address, Copy, isSame, Time } from '../parts/values.tsx';
import { announce } from '../state/announce.ts';
import { copyText } from '../state/clipboard.ts';
import { narrowTo, session } from '../state/session.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';

/** The attempts in the answer about a delivery. */
const ATTEMPTS_IN_ANSWER = 100;
/** More than a retention of 30 days has with a retry each hour. */
const ATTEMPTS_MAX = '1000';

type Props = {
  id: string;
  onClose(): void;
  /** The delivery is due again. */
  onChanged(): void;
};

export function DeliveryPanel({ id, onClose, onChanged }: Props) {
  const delivery = useDelivery(id);
  const { data, error } = delivery.state.value;
  const panel = useRef<HTMLElement>(null);
  const focus = useCallback(() => panel.current?.focus({ preventScroll: true }), []);
  useEffect(focus, [focus]);
  useShortcut('c', () => void copyText(id));
  return (
    <aside class="inspector" aria-label={texts.delivery.label(id)} tabIndex={-1} ref={panel}>
      <h1 class="only-alone">{texts.delivery.label(id)}</h1>
      <div class="detail-top">
        {data !== undefined && <Since delivery={data} />}
        <div class="actions">
          <Copy text={`${location.origin}/console/deliveries/${id}`} label={texts.delivery.copyLink} />
          <button
            type="button"
            class="icon-button"
            aria-label={texts.delivery.close}
            title={texts.close}
            onClick={onClose}
          >
            <Icon name="close" />
          </button>
        </div>
      </div>
      {data !== undefined ? (
        <Detail
          delivery={data}
          resource={delivery}
          onChanged={() => {
            // The button that had the focus may be gone.
            if (document.activeElement === document.body) focus();
            onChanged();
          }}
        />
      ) : error === undefined ? (
        <div class="is-late">
          <Ghosts rows={6} />
        </div>
      ) : error.status === 404 ? (
        <p class="prose">{texts.delivery.missing(id)}</p>
      ) : (
        <Failed error={error} onRetry={() => void delivery.reload()} />
      )}
    </aside>
  );
}

/** The delivery, loaded again when one of its attempts ends. */
function useDelivery(id: string): Resource<DeliveryDetail> {
  const delivery = useResource<DeliveryDetail>(`delivery ${id}`, (signal) => loadDelivery(id, signal), {
    everyMs: 15_000,
  });
  useEffect(
    () =>
      followAttempts({
        onAttempts(attempts) {
          if (attempts.some((attempt) => String(attempt.notification_id) === id)) void delivery.reload();
        },
        onFresh: () => void delivery.reload(),
      }),
    [delivery, id],
  );
  return delivery;
}

/** The delivery with all its attempts. The answer has only the newest hundred, and then they can't be numbered. */
async function loadDelivery(id: string, signal: AbortSignal): Promise<DeliveryDetail> {
  const delivery: DeliveryDetail = await call('GET /api/notifications/log/{id}', { path: { id }, signal });
  if (delivery.attempts.length < ATTEMPTS_IN_ANSWER) return delivery;
  const attempts = await call('GET /api/notifications/log/{id}/attempts', {
    ...{ path: { id }, query: { limit: ATTEMPTS_MAX }, watcherId: delivery.watcher_id, signal },
  });
  return { ...delivery, attempts };
}

function Since({ delivery }: { delivery: DeliveryDetail }) {
  const { status, failures, attempts } = delivery;
  const first = attempts.at(-1);
  const count = attemptCountOf(delivery);
  return (
    <>
      <DeliveryState status={status} />
      <span class="quiet">
        {failures > 0 && first !== undefined && status !== 'delivered' ? (
          <>
            {count > attempts.length ? texts.delivery.oldestStored : texts.delivery.since}{' '}
            <Time at={first.started_at} /> · {texts.delivery.attempts(count)}
          </>
        ) : (
          texts.delivery.attempts(count)
        )}
      </span>
    </>
  );
}

function Detail({
  delivery,
  resource,
  onChanged,
}: {
  delivery: DeliveryDetail;
  resource: Resource<DeliveryDetail>;
  onChanged(): void;
}) {
  const { amount, asset, type, revision, id } = delivery;
  const { symbol, decimals, isKnown } = assetOf(asset);
  const own = delivery.watched_address ?? undefined;
  const { problem, attempt } = useAttempt();
  const deliver = () =>
    attempt(async () => {
      try {
        await call('POST /api/notifications/log/{id}/redeliver', { path: { id } });
        announce(texts.delivery.due);
      } finally {
        await resource.reload();
        onChanged();
      }
    });
  const direction = isSame(delivery.sender, own) ? 'out' : isSame(delivery.receiver, own) ? 'in' : 'unknown';
  return (
    <>
      <p class="big">
        {formatAmount(amount, decimals)} <small>{isKnown ? symbol : texts.units}</small>
      </p>
      <p class="quiet">
        {texts.delivery.kind(type, direction)}
        {revision % 2 === 1 && ` · ${texts.delivery.removal}`} · {texts.delivery.number}{' '}
        <span class="mono">{id}</span> <Copy text={String(id)} label={texts.delivery.copyId} />
      </p>
      <Facts delivery={delivery} own={own} />
      <h2 class="minor">
        {texts.delivery.attemptsTitle}
        <Redeliver key={delivery.state} delivery={delivery} onDeliver={deliver} />
      </h2>
      <Problem text={problem} />
      <TimeLine delivery={delivery} onDeliver={deliver} />
      <MessageBody message={delivery.message} />
      <CopyCurl
        operation="GET /api/notifications/log/{id}"
        options={{ path: { id }, watcherId: delivery.watcher_id }}
      />
    </>
  );
}

function Facts({ delivery, own }: { delivery: DeliveryDetail; own: string | undefined }) {
  const { sender, receiver, hash, asset, amount, block, url, orphaned, replaced_by: replacedBy } = delivery;
  const { isKnown } = assetOf(asset);
  return (
    <dl class="facts">
      <dt>{texts.delivery.from}</dt>
      <dd>
        <Address value={sender} isLong /> <Copy text={sender} label={texts.delivery.copySender} />
        {isSame(sender, own) && <Watched delivery={delivery} />}
      </dd>
      <dt>{texts.delivery.to}</dt>
      <dd>
        <Address value={receiver} isLong /> <Copy text={receiver} label={texts.delivery.copyReceiver} />
        {isSame(receiver, own) && <Watched delivery={delivery} />}
      </dd>
      {asset.startsWith('0x') && (
        <>
          <dt>{texts.delivery.token}</dt>
          <dd>
            <Address value={asset} isLong /> <Copy text={asset} label={texts.delivery.copyToken} />
          </dd>
        </>
      )}
      {isKnown && (
        <>
          <dt>{texts.delivery.raw}</dt>
          <dd>
            <span class="mono second">{groupDigits(amount)}</span>{' '}
            <Copy text={amount} label={texts.delivery.copyRaw} />
          </dd>
        </>
      )}
      <dt>{texts.delivery.transaction}</dt>
      <dd>
        <Address value={hash} isLong /> <Copy text={hash} label={texts.delivery.copyHash} />
      </dd>
      <dt>{texts.delivery.block}</dt>
      <dd>
        <span class="mono">#{groupDigits(String(delivery.block_number))}</span>
        <BlockState block={block} isOrphaned={orphaned} />
      </dd>
      <dt>{texts.delivery.receiver}</dt>
      <dd>{url === null ? texts.delivery.noUrl : withoutScheme(url)}</dd>
      {session.value.kind === 'operator' && delivery.watcher_id !== undefined && (
        <>
          <dt>{texts.delivery.watcher}</dt>
          <dd>{watcherOf(delivery)}</dd>
        </>
      )}
      {replacedBy !== null && (
        <>
          <dt>{texts.delivery.replaced}</dt>
          <dd>
            <a class="link" href={`/console/deliveries/${replacedBy}`}>
              {replacedBy}
            </a>
          </dd>
        </>
      )}
    </dl>
  );
}

/** Leads to the watched address. */
function Watched({ delivery }: { delivery: DeliveryDetail }) {
  const { watcher_id: id, watcher: name } = delivery;
  return (
    <a
      class="link"
      href={`/console/addresses/${delivery.watched_address_id}`}
      onClick={() => narrowTo(id, name)}
    >
      {texts.delivery.watched}
    </a>
  );
}

function BlockState({ block, isOrphaned }: { block: DeliveryDetail['block']; isOrphaned: boolean }) {
  if (isOrphaned || block.is_orphaned)
    return <State icon="orphaned" tone="is-warn" word={texts.delivery.orphaned} />;
  if (block.is_final)
    return (
      <State
        icon="delivered"
        tone="is-ok"
        word={texts.delivery.final(formatCount(block.confirmations ?? 0))}
      />
    );
  return (
    <span class="second">
      {block.confirmations === null ? '' : texts.delivery.confirmations(block.confirmations)}
    </span>
  );
}

/** The action beside the attempts. A delivery that is due has its own in the time line, and only the shortcut asks here. */
function Redeliver({ delivery, onDeliver }: { delivery: DeliveryDetail; onDeliver(): void }) {
  const [isAsking, setAsking] = useState(false);
  const ask = useCallback(() => setAsking(true), []);
  const canRepeat = delivery.state === 'processed' && !(delivery.orphaned && delivery.revision % 2 === 0);
  const canHurry = canDeliverNow(delivery);
  useShortcut('Shift+R', canRepeat || canHurry ? ask : undefined);
  const isOpen = isAsking && (canRepeat || canHurry);
  const cancel = () => {
    // The button that has the focus goes away.
    document.activeElement?.closest('aside')?.focus({ preventScroll: true });
    setAsking(false);
  };
  useShortcut('Escape', isOpen ? cancel : undefined);
  if (!isOpen)
    return canRepeat ? (
      <button type="button" class="button is-small" onClick={ask}>
        {texts.delivery.again}
      </button>
    ) : (
      <span class="quiet">{texts.delivery.newestFirst}</span>
    );
  return (
    <span class="confirm">
      <span>{canRepeat ? texts.delivery.sure : texts.delivery.sureNow}</span>
      <button
        type="button"
        class="button is-small is-first"
        ref={(button) => button?.focus()}
        onClick={() => {
          setAsking(false);
          onDeliver();
        }}
      >
        {canRepeat ? texts.delivery.send : texts.timeline.deliverNow}
      </button>
      <button type="button" class="button is-small" onClick={cancel}>
        {texts.cancel}
      </button>
    </span>
  );
}
