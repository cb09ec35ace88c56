/**
 * The line above a live list. It always has the same height, so that nothing moves when it says something else.
 */
import { streamState } from '../api/stream.ts';
import { formatInstant } from '../format/time.ts';
import { now } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';

type Props = {
  isOn: boolean;
  /** An older page is shown, which doesn't live. */
  isPast: boolean;
  fresh: number;
  hasMissed: boolean;
  note: string | undefined;
  onShow(): void;
};

export function LiveLine({ isOn, isPast, fresh, hasMissed, note, onShow }: Props) {
  return (
    <div class="live-line">
      {isPast ? (
        <span>{texts.live.past}</span>
      ) : isOn ? (
        <>
          <StreamDot />
          <span>
            {hasMissed ? texts.live.missed : note === undefined ? streamText() : `${streamText()}. ${note}`}
          </span>
        </>
      ) : (
        <span>{texts.live.off}</span>
      )}
      {fresh > 0 && (
        <button type="button" class="fresh" onClick={onShow}>
          <Icon name="up" />
          {texts.live.fresh(fresh)}
        </button>
      )}
    </div>
  );
}

export function StreamDot() {
  const { kind } = streamState.value;
  const look = { live: 'is-live', broken: 'is-broken', connecting: 'is-trying', hidden: '', off: '' }[kind];
  return <span class={`dot ${look}`} aria-hidden="true" />;
}

/** The state of the stream in words. */
export function streamText(): string {
  const { value } = streamState;
  switch (value.kind) {
    case 'live':
      return texts.live.live;
    case 'connecting':
      return texts.live.connecting;
    case 'broken': {
      const since = formatInstant(value.since, { ms: now.value, zone: zone.value });
      const seconds = Math.max(0, Math.ceil((value.retryAt - now.value) / 1000));
      return value.isRefused ? texts.live.tooMany(seconds) : texts.live.broken(since, seconds);
    }
    case 'hidden':
    case 'off':
      return texts.live.off;
  }
}
