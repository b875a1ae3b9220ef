// The entry module: starts all others.

import { start as startComposer } from "./composer.js";
import { start as startConversation } from "./conversation.js";
import { start as startCopy } from "./copy.js";
import { start as startFeed } from "./feed.js";
import { start as startInspector } from "./inspector.js";
import { start as startImport } from "./import.js";
import { start as startKey } from "./key.js";
import { start as startKeyboard } from "./keyboard.js";
import { start as startList } from "./list.js";
import { start as startNavigation } from "./navigation.js";
import { start as startStream } from "./stream.js";
import { start as startOrganise } from "./organise.js";
import { start as startTheme } from "./theme.js";
import { start as startToast } from "./toast.js";
import { start as startTurns } from "./turns.js";

startTheme();
startToast();
startKeyboard();
startNavigation();
startList();
startComposer();
startStream();
startTurns();
startFeed();
startOrganise();
startImport();
startKey();
startCopy();
startInspector();
startConversation();
