// Looks at a page of the router in Chromium, and prints a JSON object for each look: what it shows, and what went wrong in it.
//
//     node look.mjs --url http://127.0.0.1:8080/topology [--until TEXT]... [--png FILE]
//
// It looks once the page is live, and again when it shows each TEXT, without being loaded anew.
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values: arg } = parseArgs({ options: { url: { type: "string" }, png: { type: "string" }, until: { type: "string", multiple: true, default: [] }, browser: { type: "string", default: "/usr/bin/chromium" } } });
const browser = await chromium.launch({ executablePath: arg.browser, args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
const errors = [];
page.on("pageerror", e => errors.push(String(e)));
page.on("console", m => m.type() === "error" && errors.push(m.text()));
await page.goto(arg.url);
await page.waitForFunction(() => document.getElementById("state").textContent === "live");

async function look() {
  const shown = await page.evaluate(() => ({
    title: document.getElementById("title").textContent,
    state: document.getElementById("state").textContent,
    boxes: [...document.querySelectorAll("svg .node")].map(n => [...n.querySelectorAll("text")].map(t => t.textContent).join(" | ")),
    edges: document.querySelectorAll("svg .edge").length,
    rows: [...document.querySelectorAll("tr")].map(r => [...r.children].map(c => c.textContent).join(" | ")),
    wide: document.documentElement.scrollWidth - innerWidth, // more than 0: it has to be scrolled sideways
  }));
  if (arg.png) await page.screenshot({ path: arg.png, fullPage: true });
  console.log(JSON.stringify({ ...shown, errors }));
}

await look();
for (const text of arg.until) {
  await page.waitForFunction(text => document.body.textContent.includes(text), text);
  await look();
}
await browser.close();
