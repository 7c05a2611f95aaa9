/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How pages look. Colours say nothing alone: each stands beside a word or a sign. Both themes keep 4.5:1 for text and 3:1 for
 * what is drawn; on paper everything is black on white and nothing is folded away.
 */
#include "report/page.h"

static void colours(struct html *h)
{
	html_literal(
	    h, "\n"
	       ":root{color-scheme:light dark;--paper:#fcfbf9;--ink:#1b1f23;--soft:#565d64;--line:#dcd8d0;--raised:#f3f1ec;"
	       "--link:#1d4f91;--denied:#a3262f;--allowed:#1c6b45;--watched:#7d5200;--lost:#6a3d9a;--denied-wash:#fbeceb;"
	       "--watched-wash:#fbf3e0;--track:#e3dfd6;--fill:#4a6a8a}\n"
	       "@media (prefers-color-scheme:dark){:root{--paper:#15181b;--ink:#e7e5e0;--soft:#a5abb1;--line:#343a40;"
	       "--raised:#1d2125;--link:#8db8f0;--denied:#ff9b96;--allowed:#7ccfa0;--watched:#e9bd62;--lost:#c9a6f0;"
	       "--denied-wash:#2f1d1e;--watched-wash:#2d2616;--track:#343a40;--fill:#84a9cf}}\n");
}

static void text(struct html *h)
{
	html_literal(
	    h, "*{box-sizing:border-box}\n"
	       "html{-webkit-text-size-adjust:100%;text-size-adjust:100%}\n"
	       "body{margin:0 auto;padding:2.5rem 1.5rem 4rem;max-width:72rem;background:var(--paper);color:var(--ink);"
	       "font:1rem/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",\"DejaVu Sans\",sans-serif;"
	       "font-variant-numeric:tabular-nums}\n"
	       "h1,h2,h3{line-height:1.25;margin:0;text-wrap:balance}\n"
	       "h1{font-size:1.65rem;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}\n"
	       "h2{font-size:1.15rem;font-weight:650;margin-bottom:1rem}\n"
	       "h3{font-size:1rem;font-weight:650;margin:1.75rem 0 .5rem}\n"
	       "p,ul{margin:0 0 .75rem;max-width:46rem}\nul{padding-left:1.2rem}\nli{margin:.15rem 0}\n"
	       "a{color:var(--link);text-underline-offset:.15em}\n"
	       "a:focus-visible,summary:focus-visible,.wide:focus-visible{outline:3px solid var(--link);outline-offset:2px;"
	       "border-radius:2px}\n"
	       "code,pre{font-family:ui-monospace,\"SF Mono\",\"Cascadia Mono\",Menlo,Consolas,\"DejaVu Sans Mono\",monospace;"
	       "font-size:.875em;overflow-wrap:anywhere}\n"
	       "pre{background:var(--raised);border:1px solid var(--line);border-radius:4px;padding:.8rem "
	       "1rem;white-space:pre-wrap;"
	       "tab-size:4;margin:.5rem 0}\n"
	       ".soft{color:var(--soft)}\n.number{text-align:right;white-space:nowrap}\n");
}

static void layout(struct html *h)
{
	html_literal(
	    h,
	    "header{margin-bottom:2.5rem}\n"
	    ".kind{color:var(--soft);font-size:.875rem;margin:0 0 .35rem}\n"
	    ".lead{font-size:1.2rem;line-height:1.45;margin:.9rem 0 .4rem;max-width:44rem;text-wrap:pretty}\n"
	    "nav ul{list-style:none;padding:0;margin:1.5rem 0 0;display:flex;flex-wrap:wrap;gap:.3rem 1.25rem;max-width:none;"
	    "font-size:.9375rem}\n"
	    "section{border-top:1px solid var(--line);padding:1.6rem 0 1.4rem}\n"
	    "footer{border-top:1px solid var(--line);padding-top:1rem;color:var(--soft);font-size:.875rem}\n"
	    "dl{margin:0}\n"
	    ".facts{display:grid;gap:.5rem 2.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}\n"
	    ".facts>div{display:grid;grid-template-columns:9.5rem minmax(0,1fr);gap:.75rem}\n"
	    ".facts.one{grid-template-columns:minmax(0,1fr)}\n"
	    "dt{color:var(--soft)}\ndd{margin:0;overflow-wrap:anywhere}\n"
	    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:1px;background:var(--line);"
	    "border:1px solid var(--line);border-radius:6px;overflow:hidden;margin:1.5rem 0 0}\n"
	    ".figures>div{background:var(--paper);padding:.7rem 1rem;display:flex;flex-direction:column-reverse}\n"
	    ".figures dt{font-size:.875rem}\n.figures dd{font-size:1.5rem;font-weight:600;line-height:1.2}\n"
	    ".figures .denied dd{color:var(--denied)}\n.figures .watched dd{color:var(--watched)}\n"
	    ".figures .lost dd{color:var(--lost)}\n"
	    ".notice{border:1px solid var(--line);border-left:.35rem solid var(--soft);border-radius:4px;padding:1rem 1.25rem;"
	    "margin:0 0 2rem}\n.notice h2{margin-bottom:.5rem}\n.notice :last-child{margin-bottom:0}\n"
	    ".notice.warn{border-color:var(--watched);background:var(--watched-wash)}\n"
	    ".notice.warn li{max-width:none}\n");
}

static void tables(struct html *h)
{
	html_literal(
	    h, ".wide{overflow-x:auto;margin:0 0 1rem}\n"
	       "table{border-collapse:collapse;min-width:min(100%,34rem);font-size:.9375rem}\n"
	       "caption{text-align:left;color:var(--soft);padding:0 0 .4rem;font-size:.875rem}\n"
	       "th,td{text-align:left;vertical-align:top;padding:.4rem .75rem .4rem 0;border-bottom:1px solid var(--line)}\n"
	       "th:last-child,td:last-child{padding-right:0}\n"
	       "thead th{font-size:.8125rem;font-weight:600;color:var(--soft);border-bottom-color:var(--soft);"
	       "vertical-align:bottom}\n"
	       "tbody th{font-weight:500}\n"
	       "th.number,td.number{text-align:right}thead .number{white-space:normal}\n"
	       "time span,.keep{white-space:nowrap}\ntd .soft{font-size:.875rem}\n"
	       "td a{display:inline-block;padding:.1rem 0;min-height:1.5rem}\n"
	       "td code{overflow-wrap:normal}\ntd.name code,td "
	       ".long{overflow-wrap:anywhere}\ntd.name{min-width:11rem;max-width:19rem}td.why{min-width:9rem}\n"
	       "tbody tr:last-child>*{border-bottom:0}\n"
	       "tbody tr.denied>:first-child{box-shadow:inset 3px 0 var(--denied);padding-left:.75rem}\n"
	       "tbody tr.watched>:first-child{box-shadow:inset 3px 0 var(--watched);padding-left:.75rem}\n"
	       "tbody tr.allowed>:first-child{box-shadow:inset 3px 0 var(--allowed);padding-left:.75rem}\n"
	       ".verdict{white-space:nowrap;font-weight:600}\n.verdict.denied{color:var(--denied)}\n"
	       ".verdict.allowed{color:var(--allowed)}\n.verdict.watched{color:var(--watched)}\n"
	       ".differs{color:var(--denied);font-weight:600}\n");
}

static void drawings(struct html *h)
{
	html_literal(h,
		     ".bar{display:block;width:14rem;max-width:40vw;height:.6rem;margin-top:.45rem}\n"
		     ".bar .track{fill:var(--track)}\n.bar .fill{fill:var(--fill)}\n.bar .full{fill:var(--denied)}\n"
		     ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.25rem 2rem;"
		     "margin-bottom:1rem}\n"
		     "figure{margin:0}\nfigcaption{font-weight:600;font-size:.9375rem}\n"
		     ".chart{display:block;width:100%;height:auto;max-width:36rem}\n"
		     ".chart text{fill:var(--soft);font-size:11px}\n.chart .axis{stroke:var(--soft);stroke-width:1}\n"
		     ".chart .grid{stroke:var(--line);stroke-width:1}\n"
		     ".chart .line{fill:none;stroke:var(--fill);stroke-width:1.75;stroke-linejoin:round}\n"
		     ".chart .area{fill:var(--fill);opacity:.16}\n"
		     ".chart .line.denied{stroke:var(--denied);stroke-dasharray:5 3}\n"
		     ".chart .limit{stroke:var(--denied);stroke-width:1;stroke-dasharray:2 3}\n"
		     ".chart text.denied{fill:var(--denied)}\n"
		     "details{margin:.5rem 0}\nsummary{cursor:pointer;color:var(--link);width:fit-content}\n");
}

static void other_media(struct html *h)
{
	html_literal(
	    h,
	    "@media (max-width:34rem){body{padding:1.25rem 1rem 3rem}.facts>div{grid-template-columns:minmax(0,1fr);gap:0}"
	    "h1{font-size:1.35rem}.lead{font-size:1.1rem}}\n"
	    "@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}\n"
	    "@media (forced-colors:active){.bar .fill,.bar .full{fill:CanvasText}.bar .track{fill:Canvas;stroke:CanvasText}}\n"
	    "@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#333;--line:#999;--raised:#fff;--link:#000;"
	    "--denied:#000;--allowed:#000;--watched:#000;--lost:#000;--denied-wash:#fff;--watched-wash:#fff;--track:#ddd;"
	    "--fill:#555}html{font-size:9pt}body{max-width:none;padding:0}.charts{grid-template-columns:1fr "
	    "1fr}.bar{width:8rem}"
	    "nav{display:none}section,figure,tr{break-inside:auto}"
	    "h2,h3,caption,thead{break-after:avoid}tr,figure,.notice{break-inside:avoid}.wide{overflow:visible}"
	    "table{font-size:8pt}thead th{font-size:7.5pt;white-space:normal}th,td{padding-right:.5rem}td code,td "
	    "time span,.verdict,.keep{white-space:normal;"
	    "overflow-wrap:anywhere}td.name{min-width:0}"
	    "a[href^=\"http\"]::after{content:\" <\" attr(href) \">\"}"
	    "details::details-content{content-visibility:visible;display:block;block-size:auto}summary{list-style:none}}\n");
}

void page_style(struct html *h)
{
	colours(h);
	text(h);
	layout(h);
	tables(h);
	drawings(h);
	other_media(h);
}
