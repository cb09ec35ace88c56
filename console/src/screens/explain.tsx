/**
 * Why a transaction earned its points, and why no more: its awards with their calculation, and each rule's verdict on each log.
 */
import { useRoute } from 'preact-iso';
import { callExact } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import { formatDecimal, groupDigits } from '../format/amount.ts';
import { longAddress } from '../format/short.ts';
import { CopyCurl, Empty, Loading, PageHead } from '../parts/page.tsx';
import { State } from '../parts/state.tsx';
import { Address, Copy, Time } from '../parts/values.tsx';
import { texts } from '../texts.ts';

export function Explain() {
  const { params } = useRoute();
  const hash = params.hash ?? '';
  const options = { path: { hash } };
  const explanation = useResource(`explain ${hash}`, (signal) =>
    callExact('GET /api/admin/points/explain/{hash}', { ...options, signal }),
  );
  return (
    <>
      <PageHead
        title={texts.explain.title}
        note={
          <>
            <span class="mono">{longAddress(hash)}</span> <Copy text={hash} label={texts.delivery.copyHash} />
          </>
        }
      >
        <CopyCurl operation="GET /api/admin/points/explain/{hash}" options={options} />
      </PageHead>
      <Loading loaded={explanation.state.value} reload={explanation.reload} isLoadedOnce>
        {({ data }) => (
          <div class="page-detail">
            <p class="second">
              {data.block_number === null
                ? texts.explain.noBlock
                : texts.explain.inBlock(`#${groupDigits(data.block_number)}`)}
              {data.missing !== null && ` ${data.missing.message}`}
            </p>
            <h2 class="minor">{texts.explain.awards}</h2>
            {data.awards.length === 0 && (
              <Empty text={data.block_number === null ? texts.explain.unknown : texts.explain.none} />
            )}
            {data.awards.map((award) => (
              <div key={`${award.rule} ${award.ordinal} ${award.user} ${award.role}`}>
                <p class="big">
                  {formatDecimal(award.points)} <small>{texts.points.unit}</small>
                </p>
                <p class="quiet">
                  {texts.explain.by(award.rule, award.version)} · {award.category} · {award.role} ·{' '}
                  <Time at={award.awarded_at} />
                </p>
                <dl class="facts">
                  <dt>{texts.points.user}</dt>
                  <dd>
                    <Address value={award.user} isLong />{' '}
                    <Copy text={award.user} label={texts.addresses.copy} />
                  </dd>
                  <Inputs inputs={award.inputs} />
                </dl>
              </div>
            ))}
            <h2 class="minor">{texts.explain.logs}</h2>
            {data.logs?.map((log) => (
              <div key={log.ordinal}>
                <p>
                  {texts.explain.log(log.ordinal)} <Address value={log.contract} isOwn />
                </p>
                {log.verdicts.map((verdict) => (
                  <div key={verdict.rule}>
                    <p>
                      <State
                        icon={
                          verdict.what === 'awards' || verdict.what === 'awarded' ? 'delivered' : 'waiting'
                        }
                        tone={verdict.what === 'awards' || verdict.what === 'awarded' ? 'is-ok' : ''}
                        word={verdict.rule}
                      />{' '}
                      <span class="second">{verdict.message}</span>
                    </p>
                    <dl class="facts">
                      <Inputs inputs={verdict.inputs} />
                    </dl>
                  </div>
                ))}
              </div>
            ))}
          </div>
        )}
      </Loading>
    </>
  );
}

function Inputs({ inputs }: { inputs: Record<string, string> }) {
  return (
    <>
      {Object.entries(inputs).map(([name, value]) => (
        <>
          <dt key={name}>{name}</dt>
          <dd class="num">{value}</dd>
        </>
      ))}
    </>
  );
}
