/** The shell of all pages: the current person, navigation, and the page of the address. */
import { call, get } from "./api.js";
import { MessageLayer, Button, Empty, LoadError, Icon, Loading, Menu, toastError } from "./components.js";
import { Component, classes, html, render, useCallback, useEffect, useMemo, useRef, useState } from "./html.js";
import { match, navigate, useAddress } from "./router.js";
import { MeContext, productName, useMe } from "./session.js";

/** @import { Me } from "./answers.js" */

/** @type {import("./router.js").Route[]} */
const ROUTES = [
  { pattern: "/", page: "studies", styles: ["studies.css"] },
  { pattern: "/studies/new", page: "study_edit", styles: ["studies.css"] },
  { pattern: "/studies/:id", page: "study", styles: ["studies.css"] },
  { pattern: "/studies/:id/edit", page: "study_edit", styles: ["studies.css"] },
  { pattern: "/play/:study", page: "play", styles: ["play.css"], immersive: true },
  { pattern: "/play/:study/:environment", page: "play", styles: ["play.css"], immersive: true },
  { pattern: "/episodes", page: "episodes", styles: ["studies.css"], isBroad: true },
  { pattern: "/replay/:episode", page: "replay", styles: ["vendor/uplot.css", "replay.css"], immersive: true },
  { pattern: "/compare", page: "compare", styles: ["vendor/uplot.css", "replay.css"], immersive: true },
  { pattern: "/datasets", page: "datasets", styles: ["vendor/uplot.css", "replay.css"], isBroad: true },
  { pattern: "/datasets/:d", page: "datasets", styles: ["vendor/uplot.css", "replay.css"], isBroad: true },
  { pattern: "/datasets/:d/:split/:i", page: "replay", styles: ["vendor/uplot.css", "replay.css"], immersive: true },
  { pattern: "/downloads", page: "downloads", styles: ["studies.css"] },
  { pattern: "/people", page: "people", styles: ["studies.css"] },
  { pattern: "/enter", page: "enter", styles: ["studies.css"] },
];

/** @type {Map<string, Promise<any>>} */
const pages = new Map();

/**
 * Loads a page and its styles once.
 * @param {import("./router.js").Route} route
 */
function load(route) {
  let page = pages.get(route.page);
  if (!page) {
    page = Promise.all([import(`./pages/${route.page}.js`), ...(route.styles ?? []).map(loadStyle)]).then(
      ([module]) => module.default,
    );
    page.catch(() => pages.delete(route.page));
    pages.set(route.page, page);
  }
  return page;
}

/** @type {Map<string, Promise<void>>} */
const styles = new Map();

/** @param {string} name */
function loadStyle(name) {
  let style = styles.get(name);
  if (!style) {
    style = new Promise((resolve) => {
      const link = document.createElement("link");
      link.rel = "stylesheet";
      link.href = new URL(name, import.meta.url).href;
      link.onload = () => resolve();
      link.onerror = () => resolve();
      document.head.append(link);
    });
    styles.set(name, style);
  }
  return style;
}

function App() {
  const [me, setMe] = useState(/** @type {Me | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const reload = useCallback(async () => {
    try {
      setMe(await get("/api/me"));
      setError(null);
    } catch (problem) {
      setError(problem);
    }
  }, []);
  useEffect(() => {
    void reload();
    addEventListener("signed-out", reload);
    return () => removeEventListener("signed-out", reload);
  }, []);
  const value = useMemo(
    () => me && { ...me, can: (/** @type {string} */ action) => me.may.includes(action), reload },
    [me],
  );
  if (!value)
    return error
      ? html`<main class="page"><${LoadError} isPage error=${error} onRetry=${reload} /></main>`
      : html`<${Loading} />`;
  return html`<${MeContext.Provider} value=${value}><${Shell} /><//>`;
}

function Shell() {
  const me = useMe();
  const { path, search } = useAddress();
  const matched = useMemo(() => match(ROUTES, path, search), [path, search]);
  const route =
    matched && me.mode === "view" && path === "/" ? ROUTES.find(({ page }) => page === "datasets") : matched?.route;
  const isSignedIn = me.person !== null || me.mode === "view" || route?.page === "enter";
  useEffect(() => {
    document.body.classList.toggle("immersive", Boolean(route?.immersive && isSignedIn));
  }, [route, isSignedIn]);
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Bar} />
    ${!isSignedIn
      ? html`<main id="main" tabindex="-1" class="page"><${Welcome} /></main>`
      : route
        ? html`<${Page} key=${route.page === "replay" ? route.pattern : path} route=${route}
          params=${matched?.params ?? {}} query=${matched?.query ?? {}} />`
        : html`<main id="main" tabindex="-1" class="page"><${NotFound} /></main>`}
    <${MessageLayer} />
  `;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

// The value is false until the first page is shown.
let hasShownPage = false;

/**
 * @param {{route: import("./router.js").Route, params: Record<string, string>,
 *   query: Record<string, string>}} props
 */
function Page({ route, params, query }) {
  const [page, setPage] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // After an update of the server, its pages have other addresses.
    const explain = () => setError(new Error("The page did not load. The server was updated, or does not answer."));
    load(route).then((loaded) => setPage(() => loaded), explain);
    // The focused element may have disappeared with the previous page. On the first page, the first Tab goes to the
    // link that skips the navigation.
    const isLost = document.activeElement === document.body || !document.activeElement?.isConnected;
    if (hasShownPage && isLost) main.current?.focus({ preventScroll: true });
    hasShownPage = true;
  }, []);
  return html`<main id="main" ref=${main} tabindex="-1"
    class=${classes("page", route.immersive && "wide", route.isBroad && "broad")}>
    ${error
      ? html`<${LoadError} isPage error=${error} onRetry=${() => location.reload()} />`
      : page
        ? html`<${Boundary}><${page} params=${params} query=${query} /><//>`
        : html`<${Loading} />`}
  </main>`;
}

/** Shows an error instead of a page that throws, and keeps the shell. */
class Boundary extends Component {
  /** @param {any} error */
  static getDerivedStateFromError(error) {
    return { error };
  }
  /** @param {any} error */
  componentDidCatch(error) {
    console.error(error);
  }
  /** @param {any} props @param {any} state */
  render(props, state) {
    if (!state.error) return props.children;
    return html`<${Empty} isPage icon="error" tone="bad" title="This page failed"
      action=${html`<${Button} icon="reload" onClick=${() => location.reload()}>Reload<//>`}>
      Nothing that was recorded is lost. ${String(state.error?.message ?? state.error)}
    <//>`;
  }
}

/** @param {{href: string, icon: string, below?: string[], children: any}} props `below`: prefixes of its subpages. */
function NavLink({ href, icon, below = [], children }) {
  const { path } = useAddress();
  const isCurrent = path === href || below.some((prefix) => path.startsWith(prefix));
  return html`<li>
    <a href=${href} aria-current=${isCurrent ? "page" : undefined}><${Icon} name=${icon} />${children}</a>
  </li>`;
}

function Bar() {
  const me = useMe();
  const isSignedIn = me.person !== null;
  const leave = async () => {
    try {
      await call("POST", "/api/leave", { body: {} });
      await me.reload();
      void navigate("/");
    } catch (error) {
      toastError(error);
    }
  };
  return html`<header class="bar">
    <a class="brand" href="/" aria-label="${productName(me)}, start">
      <svg viewBox="0 0 32 32" aria-hidden="true">
        <rect class="tile" width="32" height="32" rx="8" />
        <path class="sign"
          d="M12.5 10.2v11.6c0 .8.9 1.3 1.6.8l8.6-5.8c.6-.4.6-1.2 0-1.6l-8.6-5.8c-.7-.5-1.6 0-1.6.8z" />
      </svg>
      <span>${productName(me)}</span>
    </a>
    ${isSignedIn &&
    me.mode === "create" &&
    html`<nav class="nav" aria-label="Main">
      <ul>
        <${NavLink} href="/" icon="studies" below=${["/studies/", "/play/"]}>Studies<//>
        <${NavLink} href="/episodes" icon="episodes" below=${["/replay/", "/compare"]}>Episodes<//>
        ${me.can("export") && html`<${NavLink} href="/downloads" icon="download">Downloads<//>`}
        ${me.can("people") && !me.single_user && html`<${NavLink} href="/people" icon="people">People<//>`}
      </ul>
    </nav>`}
    <div class="bar-end">
      <${ThemeMenu} />
      ${isSignedIn &&
      !me.single_user &&
      html`<${Menu} label=${me.person?.name} icon="down" isIconOnly=${false}
        items=${[{ label: "Log out", icon: "back", do: leave }]} />`}
    </div>
  </header>`;
}

const THEMES = [
  { name: "system", label: "System", icon: "system" },
  { name: "light", label: "Light", icon: "light" },
  { name: "dark", label: "Dark", icon: "dark" },
];

function ThemeMenu() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "system");
  const choose = (/** @type {string} */ name) => {
    setTheme(name);
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    try {
      localStorage.setItem("theme", name);
    } catch {
      // Storage is blocked: the theme lasts until the page is closed.
    }
  };
  const icon = THEMES.find((choice) => choice.name === theme)?.icon ?? "system";
  return html`<${Menu} label="Theme" icon=${icon}
    items=${THEMES.map((choice) => ({
      label: choice.label,
      icon: choice.name === theme ? "check" : choice.icon,
      do: () => choose(choice.name),
    }))} />`;
}

function Welcome() {
  return html`<${Empty} isPage icon="lock" title="You need an invitation link">
    <p>Only invited people can open these pages. Open your invitation link once; this browser then remembers you.</p>
    <p>If you run this server, it printed a link for you when it started.</p>
  <//>`;
}

function NotFound() {
  return html`<${Empty} isPage icon="search" title="Page not found"
    action=${html`<${Button} kind="primary" href="/">Go to the start page<//>`}>
    The address is mistyped, or its content was deleted.
  <//>`;
}

const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
