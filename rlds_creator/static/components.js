/** The components that pages consist of. */
export { Button, IconButton } from "./components/button.js";
export { Chip, EPISODE_STATES, STUDY_STATES, StateChip } from "./components/chips.js";
export { Controls, KeyCap } from "./components/controls.js";
export { CopyButton } from "./components/copy_button.js";
export { Dialog } from "./components/dialog.js";
export { CheckField, Field, NumberField, Segments, SelectField, TextArea, TextField } from "./components/fields.js";
export { Figure, Progress, Time } from "./components/figures.js";
export { KeyField } from "./components/key_field.js";
export { LoadError, LoadedContent, Loading } from "./components/loading.js";
export { Markdown } from "./components/markdown.js";
export { Menu } from "./components/menu.js";
export { MessageLayer, announce, confirm, toast, toastError } from "./components/messages.js";
export { Empty, Notice } from "./components/notice.js";
export { PageHeader, Panel, useTitle } from "./components/page.js";
export { Pager, Table } from "./components/table.js";
export { Icon } from "./icons.js";
