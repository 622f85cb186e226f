"use strict";
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});
const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
for (const episode of document.querySelectorAll(".episode")) {
  const videos = [...episode.querySelectorAll("video")];
  const range = episode.querySelector("input");
  if (!range) continue;
  const button = episode.querySelector(".play");
  const cursors = episode.querySelectorAll(".cursor");
  const show = (share) => {
    const step = Math.round(share * (episode.dataset.steps - 1));
    range.value = step;
    episode.querySelector("output").value = `step ${step.toLocaleString("en")}`;
    for (const line of cursors) line.setAttribute("transform", `translate(${share * 300} 0)`);
  };
  // The last frame begins before the end of a video.
  const last = (video) => Math.max(video.duration - 1 / 12, 0.001);
  const seek = (share) => {
    for (const video of videos) {
      video.pause();
      if (video.duration) video.currentTime = share * last(video);
    }
    button.textContent = "Play";
    show(share);
  };
  const follow = () => {
    if (videos[0].paused) return;
    show(Math.min(videos[0].currentTime / last(videos[0]), 1));
    requestAnimationFrame(follow);
  };
  const play = () => {
    for (const video of videos) {
      video.currentTime = videos[0].currentTime;
      video.play().catch(() => {});
    }
    button.textContent = "Pause";
    requestAnimationFrame(follow);
  };
  range.addEventListener("input", () => seek(range.value / range.max));
  for (const chart of episode.querySelectorAll(".curves svg")) {
    chart.addEventListener("click", (event) => {
      const box = chart.getBoundingClientRect();
      seek(Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1));
    });
  }
  if (!videos.length) continue;
  button.hidden = false;
  button.addEventListener("click", () => (videos[0].paused ? play() : seek(range.value / range.max)));
  // Only visible videos play.
  const watch = new IntersectionObserver(([entry]) => {
    if (entry.isIntersecting && !isCalm) play();
    else for (const video of videos) video.pause();
  }, { threshold: 0.3 });
  watch.observe(episode);
}
