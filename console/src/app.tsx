/**
 * The pages and their addresses. Pages that few visitors open are loaded when they are opened.
 */

import type { ComponentChildren, ComponentType } from 'preact';
import { useEffect, useErrorBoundary } from 'preact/hooks';
import { ErrorBoundary, LocationProvider, Route, Router, useLocation } from 'preact-iso';
import { Frame } from './frame.tsx';
import { Empty, PageHead } from './parts/page.tsx';
import { NotFound } from './screens/not-found.tsx';
import { Overview } from './screens/overview.tsx';
import { SignIn } from './screens/sign-in.tsx';
import { onDemand } from './state/lazy.ts';
import { useProblemShown } from './state/problem-shown.ts';
import { isOperator, linkWaits, session } from './state/session.ts';
import { texts } from './texts.ts';

const Deliveries = onDemand(() => import('./screens/deliveries.tsx').then((module) => module.Deliveries));
const Addresses = onDemand(() => import('./screens/addresses.tsx').then((module) => module.Addresses));
const AddressPage = onDemand(() => import('./screens/address.tsx').then((module) => module.AddressPage));
const Receivers = onDemand(() => import('./screens/receivers.tsx').then((module) => module.Receivers));
const More = onDemand(() => import('./screens/more.tsx').then((module) => module.More));
const Secrets = onDemand(() => import('./screens/secrets.tsx').then((module) => module.Secrets));

const Points = onDemand(() => import('./screens/points.tsx').then((module) => module.Points));
const Market = onDemand(() => import('./screens/market.tsx').then((module) => module.Market));
const PairPage = onDemand(() => import('./screens/pair.tsx').then((module) => module.PairPage));
const Supply = onDemand(() => import('./screens/supply.tsx').then((module) => module.Supply));
const System = onDemand(() => import('./screens/system.tsx').then((module) => module.System));
const Watchers = onDemand(() => import('./screens/watchers.tsx').then((module) => module.Watchers));
const Keys = onDemand(() => import('./screens/keys.tsx').then((module) => module.Keys));
const Explain = onDemand(() => import('./screens/explain.tsx').then((module) => module.Explain));

/** A page for those who are signed in. Others get the form, at the same address. */
function forWatchers(Page: ComponentType): ComponentType {
  return () => (session.value.kind === 'visitor' ? <SignInSoon /> : <Page />);
}

function forOperators(Page: ComponentType): ComponentType {
  return () => (isOperator.value ? <Page /> : <SignInSoon />);
}

function SignInSoon() {
  const reason = linkWaits.value;
  return reason === undefined ? <SignIn /> : <LinkWaits reason={reason} />;
}

/** Stands in the place of the form while the key of a link can't be checked. */
function LinkWaits({ reason }: { reason: string }) {
  useProblemShown();
  return (
    <>
      <PageHead title={texts.signIn.soon} note={texts.signIn.soonNote} />
      <Empty text={reason}>
        <div class="actions">
          <a class="button" href="/console/sign-in">
            {texts.signIn.otherKey}
          </a>
        </div>
      </Empty>
    </>
  );
}

const OverviewPage = forWatchers(Overview);
const DeliveriesPage = forWatchers(Deliveries);
const AddressesPage = forWatchers(Addresses);
const OneAddressPage = forWatchers(AddressPage);
const ReceiversPage = forWatchers(Receivers);
const SecretsPage = forWatchers(Secrets);
const SystemPage = forOperators(System);
const WatchersPage = forOperators(Watchers);
const KeysPage = forOperators(Keys);
const ExplainPage = forOperators(Explain);

/** Shows the page, or that it can't be shown, until another one is opened. */
function Whole({ children }: { children: ComponentChildren }) {
  const { url } = useLocation();
  const [error, reset] = useErrorBoundary((fault: unknown) => console.error(fault));
  useEffect(reset, [url]);
  if (error === undefined) return <>{children}</>;
  return <Empty text={texts.brokenPage} />;
}

export function App() {
  return (
    <LocationProvider scope="/console">
      <ErrorBoundary>
        <Frame>
          <Whole>
            <Router>
              <Route path="/console" component={OverviewPage} />
              <Route path="/console/deliveries/:id?" component={DeliveriesPage} />
              <Route path="/console/addresses" component={AddressesPage} />
              <Route path="/console/addresses/:id" component={OneAddressPage} />
              <Route path="/console/receivers" component={ReceiversPage} />
              <Route path="/console/secrets" component={SecretsPage} />
              <Route path="/console/points/:user?" component={Points} />
              <Route path="/console/market" component={Market} />
              <Route path="/console/market/:id" component={PairPage} />
              <Route path="/console/supply" component={Supply} />
              <Route path="/console/system" component={SystemPage} />
              <Route path="/console/watchers" component={WatchersPage} />
              <Route path="/console/keys" component={KeysPage} />
              <Route path="/console/explain/:hash" component={ExplainPage} />
              <Route path="/console/more" component={More} />
              <Route path="/console/sign-in" component={SignIn} />
              <Route default component={NotFound} />
            </Router>
          </Whole>
        </Frame>
      </ErrorBoundary>
    </LocationProvider>
  );
}
