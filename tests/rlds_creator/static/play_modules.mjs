// Tests of the modules of the player, run by test_play_modules.py with the folder of the pages.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const pages = process.env.PAGES;
const { layerName } = await import(`${pages}/format.js`);
const { decodeFrame } = await import(`${pages}/frames.js`);
const { Inputs } = await import(`${pages}/play/inputs.js`);
const { Keys, reserveKeys } = await import(`${pages}/play/keys.js`);
const { Gamepads, isSpaceMouse, quantiseAxis, readPad, readSpaceReport } = await import(`${pages}/play/gamepad.js`);
const { placeInPicture } = await import(`${pages}/play/pointer.js`);

/** Inputs that remember what left. */
function recorder() {
  const messages = [];
  const inputs = new Inputs((message) => messages.push(message) > 0);
  return { inputs, messages, names: () => messages.flatMap(({ events }) => events.map(({ name, value }) => [name, value])) };
}

/** A keyboard whose events the keys of a page take. */
function keyboard({ used = [], commands = () => false, isListening = () => true } = {}) {
  const { inputs, messages, names } = recorder();
  const keys = new Keys({ inputs, isUsed: (code) => used.includes(code), reserved: commands, isListening });
  const event = (code, more) => {
    const made = { code, key: code, timeStamp: 1, isPrevented: false, preventDefault: () => (made.isPrevented = true), ...more };
    return made;
  };
  return {
    keys,
    messages,
    names,
    down(code, more = {}) {
      const made = event(code, more);
      keys.press(made);
      return made;
    },
    up(code, more = {}) {
      keys.release(event(code, more));
    },
  };
}

test("frames are read as Python wrote them", async () => {
  for (const { message, ...expected } of JSON.parse(readFileSync(process.env.FRAMES, "utf8"))) {
    const bytes = Uint8Array.from(atob(message), (character) => character.charCodeAt(0));
    const { picture, ...frame } = decodeFrame(bytes.buffer);
    const { picture: text, media_type: type, ...rest } = expected;
    assert.deepEqual(frame, rest);
    assert.equal(await picture.text(), text);
    assert.equal(picture.type, type);
    for (const cut of [0, 1, 35]) assert.throws(() => decodeFrame(bytes.slice(0, cut).buffer), RangeError);
    if (rest.action) assert.throws(() => decodeFrame(bytes.slice(0, 37).buffer), RangeError);
    const newer = bytes.slice();
    newer[0] = 2;
    assert.throws(() => decodeFrame(newer.buffer), RangeError);
  }
});

test("a key that is held is one event, by its place", () => {
  const { down, up, names, messages } = keyboard();
  down("KeyA", { key: "a" });
  down("KeyA", { key: "a", repeat: true });
  down("ShiftLeft", { key: "Shift" });
  up("KeyA", { key: "A" }); // With Shift, the letter is another one; the place is not.
  up("ShiftLeft", { key: "Shift" });
  assert.deepEqual(names(), [["KeyA", 1], ["ShiftLeft", 1], ["KeyA", 0], ["ShiftLeft", 0]]);
  assert.deepEqual(messages.map(({ seq }) => seq), [1, 2, 3, 4]);
  assert.equal(messages[0].events[0].key, "a");
});

test("what is held when the focus is lost is released, and stays so", () => {
  const { keys, down, up, names } = keyboard();
  down("ArrowLeft");
  down("Space");
  keys.releaseAll();
  up("Space"); // Its release comes late, or never.
  assert.deepEqual(names(), [["ArrowLeft", 1], ["Space", 1], ["*", 0]]);
  keys.releaseAll();
  assert.equal(names().length, 3);
  // A key that is still down repeats when the focus comes back: that is no press.
  down("ArrowLeft", { repeat: true });
  assert.equal(names().length, 3);
});

test("systems keep the releases of what is down together with Meta", () => {
  const { down, up, names } = keyboard();
  down("KeyD");
  down("MetaLeft", { metaKey: true });
  up("MetaLeft");
  assert.deepEqual(names(), [["KeyD", 1], ["*", 0]]);
});

test("shortcuts of the browser stay the browser's, unless the environment uses them", () => {
  const plain = keyboard({ used: ["KeyR"] });
  for (const [code, more] of [["KeyR", { ctrlKey: true }], ["KeyL", { metaKey: true }], ["F5", {}], ["Tab", {}], ["AltLeft", { altKey: true }], ["ArrowLeft", { altKey: true }]]) {
    assert.equal(plain.down(code, more).isPrevented, false, code);
    plain.up(code, more);
  }
  assert.deepEqual(plain.names(), []);
  const nethack = keyboard({ used: ["ControlLeft", "KeyD", "Tab", "F5"] });
  for (const [code, more] of [["ControlLeft", { ctrlKey: true }], ["KeyD", { ctrlKey: true }], ["Tab", {}], ["F5", {}]])
    assert.equal(nethack.down(code, more).isPrevented, true, code);
  assert.equal(nethack.names().length, 4);
});

test("what scrolls the page is kept from it; other keys that nobody uses are sent all the same", () => {
  const { down, names } = keyboard();
  assert.equal(down("Space").isPrevented, true);
  assert.equal(down("PageDown").isPrevented, true);
  assert.equal(down("KeyQ").isPrevented, false);
  assert.equal(names().length, 3);
});

test("fields and dialogs have the keys that are meant for them, and releases still count", () => {
  let isListening = true;
  const { down, up, names } = keyboard({ isListening: () => isListening });
  down("KeyA");
  isListening = false;
  assert.equal(down("KeyB").isPrevented, false);
  up("KeyA");
  up("KeyB");
  assert.deepEqual(names(), [["KeyA", 1], ["KeyA", 0]]);
});

test("commands take the keys that the environment leaves, and are told of both ways", () => {
  assert.deepEqual(
    [...reserveKeys([{ inputs: ["ArrowLeft", "KeyC+Space"] }])].sort(),
    [["Backspace", "retry"], ["End", "end"], ["Enter", "end"], ["Equal", "success"], ["Escape", "pause"], ["F2", "camera"], ["KeyF", "fullscreen"], ["KeyP", "pause"], ["Minus", "failure"]].sort(),
  );
  const text = reserveKeys([{ inputs: ["Enter", "KeyP", "Escape", "Backspace", "Equal"] }]);
  assert.equal(text.get("Escape"), "pause");
  assert.equal(text.has("KeyP") || text.has("Enter") || text.has("Backspace"), false);
  assert.deepEqual([text.get("End"), text.get("Delete"), text.get("NumpadAdd")], ["end", "retry", "success"]);

  const told = [];
  const commands = (code, isDown) => code === "Backspace" && told.push(isDown) > 0;
  const { keys, down, up, names } = keyboard({ commands });
  down("Backspace");
  down("Backspace", { repeat: true });
  up("Backspace");
  down("Backspace");
  keys.releaseAll();
  assert.deepEqual(told, [true, false, true, false]);
  assert.deepEqual(names(), []);
});

test("messages have at most 100 events, and numbers that go on after the page was loaded anew", () => {
  const { inputs, messages } = recorder();
  inputs.change(Array.from({ length: 230 }, (_, index) => ({ t: 0, name: `Input${index}`, value: 1 })));
  assert.deepEqual(messages.map(({ events }) => events.length), [100, 100, 30]);
  inputs.change([{ t: 0, name: "Input7", value: 1 }]); // It has this value already.
  assert.equal(messages.length, 3);
  inputs.latencyAt(70);
  inputs.begin();
  assert.equal(messages.at(-1).seq, 71);
  assert.deepEqual(messages.at(-1).events.map(({ name }) => name), ["*"]);
});

test("the time to a picture counts from the newest press that it shows, once", () => {
  const { inputs } = recorder();
  const now = performance.now();
  inputs.change([{ t: now - 5000, name: "KeyA", value: 1 }]);
  inputs.change([{ t: now - 4000, name: "KeyA", value: 0 }]);
  inputs.change([{ t: now - 50, name: "KeyA", value: 1 }]);
  assert.equal(inputs.latencyAt(0), null);
  const latency = inputs.latencyAt(3);
  assert.ok(latency >= 50 && latency < 1000, String(latency));
  assert.equal(inputs.latencyAt(3), null);
});

test("sticks have a middle, an edge that does not flicker, and steps that do not tremble", () => {
  assert.equal(quantiseAxis(0.0999, 0), 0);
  assert.equal(quantiseAxis(0.1, 0), 0.1);
  assert.equal(quantiseAxis(0.085, 0.1), 0.1);
  assert.equal(quantiseAxis(0.079, 0.1), 0);
  assert.equal(quantiseAxis(-1.2, 0), -1);
  assert.equal(quantiseAxis(NaN, 0.5), 0);
  // Between two steps, what trembles stays where it was.
  for (const previous of [0.5, 0.525]) for (const raw of [0.511, 0.513, 0.514]) assert.equal(quantiseAxis(raw, previous), previous);
  let previous = 0;
  for (let raw = 0; raw <= 1; raw += 0.001) {
    const value = quantiseAxis(raw, previous);
    assert.ok(value >= previous && Math.abs(value - raw) < 0.101, `${raw} became ${value}`);
    previous = value;
  }
  assert.equal(quantiseAxis(1, previous), 1);
  const mouse = { id: "3Dconnexion SpaceMouse Wireless (Vendor: 256f Product: c62e)", axes: [0, 0.5, 0, 0, 0, -1, 1], buttons: [{ value: 1 }] };
  assert.ok(isSpaceMouse(mouse.id) && !isSpaceMouse("Xbox 360 Controller (STANDARD GAMEPAD Vendor: 045e Product: 028e)"));
  assert.deepEqual(readPad(mouse, () => 0), [["Space0", 0], ["Space1", 0.5], ["Space2", 0], ["Space3", 0], ["Space4", 0], ["Space5", -1], ["Button0", 1]]);
});

test("reports of a SpaceMouse are axes and buttons", () => {
  const view = (...bytes) => new DataView(Uint8Array.from(bytes).buffer);
  assert.deepEqual(readSpaceReport(1, view(0x5e, 0x01, 0, 0, 0xa2, 0xfe)), [["Space0", 1], ["Space1", 0], ["Space2", -1]]);
  assert.deepEqual(readSpaceReport(2, view(175, 0, 0, 0, 0, 0)), [["Space3", 0.5], ["Space4", 0], ["Space5", 0]]);
  assert.deepEqual(readSpaceReport(1, view(...Array(12).fill(0))).map(([name]) => name), ["Space0", "Space1", "Space2", "Space3", "Space4", "Space5"]);
  assert.deepEqual(readSpaceReport(3, view(0b10)).filter(([, value]) => value), [["Button1", 1]]);
  assert.deepEqual(readSpaceReport(1, view(7)), []);
});

test("a gamepad that begins an episode, changes or goes away leaves nothing held", () => {
  const { inputs, names } = recorder();
  let pads = [];
  Object.defineProperty(globalThis, "navigator", { value: { getGamepads: () => pads }, configurable: true });
  const controllers = [];
  let isListening = false;
  const pad = (id, axes, buttons) => ({ id, connected: true, axes, buttons: buttons.map((value) => ({ value })) });
  const gamepads = new Gamepads({
    inputs,
    isListening: () => isListening,
    onPress: () => !isListening,
    onController: (controller) => controllers.push(controller),
  });
  pads = [null, pad("Pad A", [0.02, 0.8], [1])];
  gamepads.poll();
  assert.deepEqual(names(), []); // The press began the episode.
  isListening = true;
  pads = [null, pad("Pad A", [0.02, 0.8], [1])];
  gamepads.poll();
  assert.deepEqual(names(), [["Axis1", 0.8]]); // The stick counts since the game runs, that press does not.
  pads = [null, pad("Pad A", [0.02, -0.6], [0])];
  gamepads.poll();
  pads = [null, pad("Pad A", [0.02, -0.6], [0.5])];
  gamepads.poll();
  gamepads.poll();
  assert.deepEqual(names().slice(1), [["Axis1", -0.6], ["Button0", 0.5]]);
  inputs.releaseAll(); // The window lost the focus, and has it again.
  gamepads.poll();
  assert.deepEqual(names().slice(3), [["*", 0], ["Axis1", -0.6], ["Button0", 0.5]]);
  pads = [null, null];
  gamepads.poll();
  assert.deepEqual(names().slice(6), [["Axis1", 0], ["Button0", 0]]);
  assert.deepEqual(controllers, ["Pad A", ""]);
  assert.equal(inputs.held.size, 0);
});

test("a point of the page is a part of the picture, wherever it is fitted in", () => {
  const box = { left: 10, top: 20, width: 400, height: 200 };
  const square = { width: 84, height: 84 };
  assert.deepEqual(placeInPicture({ x: 210, y: 120 }, box, square), { x: 0.5, y: 0.5, isInside: true });
  assert.deepEqual(placeInPicture({ x: 110, y: 20 }, box, square), { x: 0, y: 0, isInside: true });
  assert.deepEqual(placeInPicture({ x: 60, y: 170 }, box, square), { x: 0, y: 0.75, isInside: false });
});

test("a layer of labels has a name in files and conditions that is close to what people call it", () => {
  const names = {
    "Grasp OK?": "grasp_ok",
    "phase <img src=x>": "phase_img_src_x",
    品質: "品質",
    "Größe/Höhe": "größe_höhe",
    "गुणवत्ता ठीक": "गुणवत्ता_ठीक",
    "2 hands": "layer_2_hands",
    "__a__b": "a_b",
    "👍": "layer",
    "../../x": "x",
  };
  for (const [title, name] of Object.entries(names)) assert.equal(layerName(title), name);
  assert.equal(layerName("品".repeat(100)).length, 48);
});
