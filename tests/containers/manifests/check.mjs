// SPDX-License-Identifier: Apache-2.0
// Reads YAML files as Kubernetes does and holds each document against Kubernetes' own description of it, strictly:
//   node check.mjs FILE…   ->   [{"file", "document", "errors": ["…"]}, …] on standard output
// Two packages, since each sees what the other does not. TypeScript with kubernetes-types: unknown and missing fields, and types.
// The validators of kubernetes-models: words that a field may be, formats of quantities and times.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import ts from "typescript";
import YAML from "yaml";

const HERE = new URL(".", import.meta.url).pathname;
const NOT_KUBERNETES = new Set(["kustomize.config.k8s.io/v1beta1"]); // for kustomize, which knows no type of it

/** The documents of a file; a key that is there twice is an error, and so is what YAML 1.1 and 1.2 read differently ("on", 0400). */
function documents(text) {
  const of = (version) => YAML.parseAllDocuments(text, { version, uniqueKeys: true, merge: true });
  const newer = of("1.1");
  const older = of("1.2");
  return newer.map((document, i) => {
    const errors = [...document.errors, ...document.warnings].map((e) => "YAML: " + e.message.split("\n")[0]);
    const value = errors.length ? null : document.toJS();
    if (!errors.length && !isDeepStrictEqual(value, older[i].toJS())) errors.push("YAML: 1.1 and 1.2 do not read this alike: quote it");
    return { document: value, errors };
  });
}

/** "apps/v1" is apps/v1 in both packages, "v1" is core/v1 in one and v1 in the other, "networking.k8s.io/v1" loses its end in one. */
function modules({ apiVersion, kind }) {
  const [group, version] = apiVersion.includes("/") ? apiVersion.split("/") : ["", apiVersion];
  return { types: `kubernetes-types/${group.replace(/\.k8s\.io$/, "") || "core"}/${version}`, model: `kubernetes-models/${apiVersion}/${kind}` };
}

/** One TypeScript program for all of them: a literal of the type may have no property that the type has not. */
function typeErrors(checked) {
  const sources = new Map(
    checked.map(({ document }, i) => [
      `${HERE}document-${i}.ts`,
      `import type { ${document.kind} } from "${modules(document).types}";\nexport const document: Required<Pick<${document.kind}, "apiVersion" | "kind">> & ${document.kind} = ` +
        JSON.stringify(document, null, 1) + ";\n",
    ]),
  );
  const options = { strict: true, noEmit: true, skipLibCheck: true, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Node10, types: [] };
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.getSourceFile = (name, language) => (sources.has(name) ? ts.createSourceFile(name, sources.get(name), language) : getSourceFile.call(host, name, language));
  host.fileExists = (name) => sources.has(name) || fileExists.call(host, name);
  host.readFile = (name) => sources.get(name) ?? readFile.call(host, name);
  const program = ts.createProgram([...sources.keys()], options, host);
  return [...sources.keys()].map((name) => {
    const file = program.getSourceFile(name);
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map((d) => {
      const line = sources.get(name).split("\n")[file.getLineAndCharacterOfPosition(d.start).line].trim();
      return `type: ${ts.flattenDiagnosticMessageText(d.messageText, " ")} (at ${line})`;
    });
  });
}

async function modelErrors(document) {
  let model;
  try {
    model = (await import(modules(document).model))[document.kind];
  } catch {
    return [`model: there is no ${document.apiVersion} ${document.kind}`];
  }
  try {
    new model(document).validate();
    return [];
  } catch (e) {
    return [`model: ${e.message}`];
  }
}

const found = process.argv.slice(2).flatMap((file) => documents(readFileSync(file, "utf8")).map((d) => ({ file, ...d })));
for (const f of found)
  if (!f.errors.length && !(typeof f.document?.apiVersion === "string" && typeof f.document?.kind === "string")) f.errors.push("apiVersion and kind must be there");
const checked = found.filter((f) => !f.errors.length && !NOT_KUBERNETES.has(f.document.apiVersion));
const types = typeErrors(checked);
for (const [i, f] of checked.entries()) f.errors.push(...types[i], ...(await modelErrors(f.document)));
console.log(JSON.stringify(found, null, 1));
