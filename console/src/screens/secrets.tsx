/**
 * The secrets that sign webhooks: the present ones, rotation with an overlap, and what a receiver must do meanwhile.
 */
import { useState } from 'preact/hooks';
import { useAttempt } from '../api/attempt.ts';
import { call } from '../api/client.ts';
import { type Resource, SLOW_MS, useResource } from '../api/resource.ts';
import type { SigningSecret } from '../api/types.ts';
import { Dialog, DialogButtons } from '../parts/dialog.tsx';
import { TextField } from '../parts/fields.tsx';
import { CopyCurl, Loading, PageHead } from '../parts/page.tsx';
import { Problem } from '../parts/problem.tsx';
import { State } from '../parts/state.tsx';
import { Table } from '../parts/table.tsx';
import { Copy, Countdown, Time } from '../parts/values.tsx';
import { WatcherNeeded } from '../parts/watcher-choice.tsx';
import { announce } from '../state/announce.ts';
import { now } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { showsAll } from '../state/session.ts';
import { texts } from '../texts.ts';

export function Secrets() {
  return showsAll.value ? <WatcherNeeded title={texts.secrets.title} /> : <Own />;
}

function Own() {
  const [rotates, setRotates] = useState(false);
  const secrets = useResource(
    'secrets',
    (signal) => call('GET /api/notifications/signing-secrets', { signal }),
    { everyMs: SLOW_MS },
  );
  return (
    <>
      <PageHead title={texts.secrets.title} note={texts.secrets.note}>
        <CopyCurl operation="GET /api/notifications/signing-secrets" />
        <button type="button" class="button" onClick={() => setRotates(true)}>
          {texts.secrets.rotate}
        </button>
      </PageHead>
      <Loading loaded={secrets.state.value} reload={secrets.reload}>
        {(data) => <SecretTable secrets={data} />}
      </Loading>
      <div class="columns">
        <section aria-labelledby="verify">
          <div class="section-head">
            <h2 id="verify">{texts.secrets.verify}</h2>
          </div>
          <ol class="numbered">
            {texts.secrets.steps.map((step) => (
              <li key={step}>{step}</li>
            ))}
          </ol>
        </section>
        <Ed25519 />
      </div>
      {rotates && <RotateDialog secrets={secrets} onClose={() => setRotates(false)} />}
    </>
  );
}

function SecretTable({ secrets }: { secrets: readonly SigningSecret[] }) {
  const [shown, setShown] = useState<ReadonlySet<number>>(new Set());
  const toggle = (number: number) => {
    const next = new Set(shown);
    if (!next.delete(number)) next.add(number);
    setShown(next);
  };
  return (
    <section aria-label={texts.secrets.caption}>
      <Table caption={texts.secrets.caption}>
        <thead>
          <tr>
            <th class="right">{texts.secrets.number}</th>
            <th>{texts.secrets.state}</th>
            <th>{texts.secrets.secret}</th>
            <th class="third-rank">{texts.secrets.publicKey}</th>
            <th class="right">{texts.addresses.created(texts.zones[zone.value])}</th>
            <th class="right">{texts.secrets.ends}</th>
          </tr>
        </thead>
        <tbody>
          {secrets.map((one) => {
            const isEnding = one.ends_at !== null;
            const isOver = one.ends_at !== null && Date.parse(one.ends_at) <= now.value;
            return (
              <tr key={one.number}>
                <td class="right">{one.number}</td>
                <td>
                  {isOver ? (
                    <State icon="cancelled" tone="" word={texts.secrets.over} />
                  ) : isEnding ? (
                    <State icon="retrying" tone="is-warn" word={texts.secrets.ending} />
                  ) : (
                    <State icon="delivered" tone="is-ok" word={texts.secrets.signs} />
                  )}
                </td>
                <td>
                  <span class="mono">
                    {shown.has(one.number) ? one.secret : `${one.secret.slice(0, 6)}${'•'.repeat(12)}`}
                  </span>{' '}
                  <button type="button" class="link" onClick={() => toggle(one.number)}>
                    {shown.has(one.number) ? texts.secrets.hide : texts.secrets.show}
                    <span class="hidden"> {one.number}</span>
                  </button>{' '}
                  <Copy text={one.secret} label={texts.secrets.copy(one.number)} />
                </td>
                <td class="third-rank long mono" title={one.public_key}>
                  {one.public_key}
                </td>
                <td class="right quiet">
                  <Time at={one.created_at} />
                </td>
                <td class="right quiet">
                  {one.ends_at === null ? (
                    texts.none
                  ) : (
                    <>
                      {texts.in} <Countdown to={one.ends_at} />
                    </>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </Table>
    </section>
  );
}

function RotateDialog({ secrets, onClose }: { secrets: Resource<SigningSecret[]>; onClose(): void }) {
  const [hours, setHours] = useState('24');
  const { problem, isBusy, attempt } = useAttempt();
  const isGood = /^\d+(\.\d+)?$/.test(hours);
  const rotate = async () => {
    const data = await call('POST /api/notifications/signing-secrets/rotate', {
      body: { overlap_hours: Number(hours) },
    });
    secrets.change(() => data);
    announce(texts.secrets.rotated);
    onClose();
  };
  return (
    <Dialog title={texts.secrets.rotateTitle} onClose={onClose} onSubmit={() => attempt(rotate)}>
      <p class="prose">{texts.secrets.rotateNote}</p>
      <TextField
        label={texts.secrets.overlap}
        value={hours}
        inputMode="decimal"
        onInput={setHours}
        note={texts.secrets.overlapNote}
        problem={isGood ? problem : texts.secrets.badHours}
      />
      <DialogButtons submit={texts.secrets.rotateNow} onClose={onClose} isDisabled={!isGood || isBusy} />
    </Dialog>
  );
}

function Ed25519() {
  const settings = useResource('secret settings', (signal) =>
    call('GET /api/notifications/signing-secrets/settings', { signal }),
  );
  const { data, error } = settings.state.value;
  const isOn = data?.v1a === true;
  const { problem, attempt } = useAttempt();
  const change = async () => {
    try {
      const next = await call('PUT /api/notifications/signing-secrets/settings', { body: { v1a: !isOn } });
      settings.change(() => next);
    } catch (failure) {
      // The request may have arrived.
      void settings.reload();
      throw failure;
    }
  };
  return (
    <section aria-labelledby="ed25519">
      <div class="section-head">
        <h2 id="ed25519">{texts.secrets.ed25519}</h2>
      </div>
      <p class="second prose">{texts.secrets.ed25519Note}</p>
      <button
        type="button"
        class="switch"
        role="switch"
        aria-checked={isOn}
        disabled={data === undefined}
        onClick={() => attempt(change)}
      >
        <i aria-hidden="true" />
        {texts.secrets.ed25519Switch}
      </button>
      <Problem text={problem ?? error?.message} />
    </section>
  );
}
