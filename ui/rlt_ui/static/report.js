// A report: all parts of one run below each other, from the records in the file.

import { showError } from "./dom.js";
import { showRun } from "./run.js";
import { startTheme } from "./theme.js";

const main = document.getElementById("main");
startTheme();
showRun(main, "", null, () => true).catch((error) => main.replaceChildren(showError(error)));
