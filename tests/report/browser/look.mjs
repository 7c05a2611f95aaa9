// SPDX-License-Identifier: Apache-2.0
// Looks at pages in a real browser: `node look.mjs < job.json`, findings as JSON on stdout.
// Job: {"chromium": path, "pictures": folder, "pages": [{"name", "file", "views": names, or null for all, and what costs time and
// is done only where it is asked for: "axe", "keyboard" (in light), "grammar", "picture"}]}.
import fs from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
import puppeteer from "puppeteer-core";
import {HtmlValidate} from "html-validate";

const job = JSON.parse(fs.readFileSync(0, "utf8"));
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const VIEWS = [
	{name: "light", width: 1280, features: [{name: "prefers-color-scheme", value: "light"}]},
	{name: "dark", width: 1280, features: [{name: "prefers-color-scheme", value: "dark"}]},
	{name: "narrow", width: 320, features: [{name: "prefers-color-scheme", value: "light"}]},
	{name: "print", width: 800, media: "print"},
];

// WCAG 2.0 to 2.2, A and AA, and what axe calls best practice.
async function accessibility(page) {
	const result = await page.evaluate(() => window.axe.run(document, {
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
	}));
	return {
		passes: result.passes.length,
		violations: result.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 200)).join(" | ")),
		unsure: result.incomplete.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120) + " " + (n.any[0]?.message ?? "")).join(" | ")),
	};
}

// What Tab reaches, in its order, and what can be acted on at all.
async function keyboard(page) {
	const wanted = await page.evaluate(() => {
		const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
		all.forEach((e, i) => e.setAttribute("data-nth", i));
		return all.filter((e) => e.checkVisibility({contentVisibilityAuto: true})).map((e) => Number(e.dataset.nth));
	});
	const reached = [], unseen = [];
	await page.evaluate(() => document.activeElement?.blur());
	for (let i = 0; i < wanted.length + 2; i++) {
		await page.keyboard.press("Tab");
		const at = await page.evaluate(() => {
			const e = document.activeElement;
			if (!e || e === document.body)
				return null;
			return {nth: Number(e.dataset.nth), outline: getComputedStyle(e).outlineStyle, html: e.outerHTML.slice(0, 120)};
		});
		if (!at || reached.includes(at.nth))
			break;
		reached.push(at.nth);
		if (at.outline === "none")
			unseen.push(at.html);
	}
	return {wanted, reached, unseen};
}

async function lookAt(browser, {name, file, ...wanted}, view) {
	const page = await browser.newPage();
	const requests = [], complaints = [];
	page.on("request", (r) => requests.push(r.url()));
	page.on("console", (m) => complaints.push(m.text()));
	page.on("pageerror", (e) => complaints.push(String(e)));
	const cdp = await page.createCDPSession();
	await cdp.send("Audits.enable");
	cdp.on("Audits.issueAdded", (i) => complaints.push(JSON.stringify(i.issue)));
	// The page has to be whole without scripts, so it gets none; this driver's own are not the page's.
	await page.setViewport({width: view.width, height: 900, deviceScaleFactor: 1});
	await page.goto(pathToFileURL(file).href, {waitUntil: "load"});
	// After the page is there, or a new process of the browser's would not know; and one of the two, for the second undoes the first.
	if (view.media)
		await page.emulateMediaType(view.media);
	else
		await page.emulateMediaFeatures(view.features);
	const found = await page.evaluate(() => ({
		title: document.title,
		lang: document.documentElement.lang,
		text: document.body.textContent,
		width: document.scrollingElement.scrollWidth,
		scripts: document.scripts.length,
		media: ["print", "(prefers-color-scheme: dark)"].filter((m) => matchMedia(m).matches),
		background: getComputedStyle(document.body).backgroundColor,
		styled: getComputedStyle(document.body).maxWidth !== "none" || matchMedia("print").matches,
		tags: [...new Set([...document.querySelectorAll("*")].map((e) => e.localName))].sort(),
		attributes: [...new Set([...document.querySelectorAll("*")].flatMap((e) => e.getAttributeNames()))].sort(),
		headings: [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map((e) => Number(e.localName[1])),
		folded: [...document.querySelectorAll("details > :not(summary)")].filter((e) => !e.checkVisibility({contentVisibilityAuto: true})).length,
		tables: [...document.querySelectorAll("table")].filter((t) => !t.caption || t.querySelector("th:not([scope])")).length,
	}));
	if (wanted.axe) {
		await page.evaluate(axe);
		found.axe = await accessibility(page);
	}
	if (wanted.picture)
		await page.screenshot({path: `${job.pictures}/${name}-${view.name}.png`, fullPage: true});
	if (wanted.keyboard && view.name === "light")
		found.keyboard = await keyboard(page);
	await page.close();
	return {...found, requests, complaints};
}

// The grammar of HTML, strictly; what is only taste is left out.
async function grammar(file) {
	const validator = new HtmlValidate({
		root: true,
		extends: ["html-validate:standard"],
		rules: {"long-title": "off", "no-inline-style": "error", "prefer-native-element": "off", "no-redundant-role": "off"},
	});
	const report = await validator.validateString(fs.readFileSync(file, "utf8"));
	return report.results.flatMap((r) => r.messages).map((m) => `${m.line}:${m.column} ${m.ruleId}: ${m.message}`);
}

// As root a browser can't make its own sandbox's namespaces; these pages are ours and are not allowed to fetch anything.
const browser = await puppeteer.launch({
	executablePath: job.chromium,
	headless: true,
	args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
const findings = {};
for (const p of job.pages) {
	findings[p.name] = {grammar: p.grammar ? await grammar(p.file) : null};
	for (const view of VIEWS.filter((v) => !p.views || p.views.includes(v.name)))
		findings[p.name][view.name] = await lookAt(browser, p, view);
}
await browser.close();
console.log(JSON.stringify(findings));
