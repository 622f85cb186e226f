/** Draws pictures in order; if several arrive during decoding, only the newest is drawn. */

const PIXEL_ART_SIDE = 320;

/**
 * Draws a picture in its original size; the styles of the page fit it into its box.
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasImageSource & {width: number, height: number}} picture
 */
export function drawPicture(canvas, picture) {
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    canvas.width = picture.width;
    canvas.height = picture.height;
    canvas.classList.toggle("is-pixelated", Math.max(picture.width, picture.height) <= PIXEL_ART_SIDE);
  }
  canvas.getContext("2d", { alpha: false })?.drawImage(picture, 0, 0);
}

/** @template {{picture: Blob}} T A frame with a picture. */
export class Screen {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(drawn: T) => void} onDrawn
   * @param {(error: Error) => void} [onBroken] Called if a picture cannot be decoded.
   */
  constructor(canvas, onDrawn, onBroken = () => {}) {
    this.canvas = canvas;
    this.onDrawn = onDrawn;
    this.onBroken = onBroken;
    /** The newest frame that arrived during decoding. @type {T | null} */
    this.waiting = null;
    this.isBusy = false;
    this.isClosed = false;
  }

  /**
   * Shows a picture after the previous one; it replaces a waiting picture.
   * @param {T} frame
   */
  show(frame) {
    this.waiting = frame;
    if (!this.isBusy) void this.#draw();
  }

  close() {
    this.isClosed = true;
    this.waiting = null;
  }

  async #draw() {
    this.isBusy = true;
    while (this.waiting) {
      const frame = this.waiting;
      this.waiting = null;
      try {
        const bitmap = await createImageBitmap(frame.picture);
        if (!this.isClosed) drawPicture(this.canvas, bitmap);
        bitmap.close();
      } catch (error) {
        this.onBroken(/** @type {Error} */ (error));
      }
      // A broken picture counts as drawn, so that the server does not wait for it.
      if (!this.isClosed) this.onDrawn(frame);
    }
    this.isBusy = false;
  }
}
