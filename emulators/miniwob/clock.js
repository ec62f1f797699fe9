// Time that stands still while the agent thinks: the page's timers, frames and dates move only by prillClock.advance().
//
// So an episode does not depend on how fast the machine or the agent is, nor on the day on which it is played.
window.prillClock = (() => {
  const START = Date.UTC(2017, 0, 2, 12);
  const FRAME = 16;
  // A timer that is due at once runs at once, as in any page: code between two of our calls may wait for it.
  const AT_ONCE = 4;
  const MOST = 100000;
  const real = { later: window.setTimeout.bind(window), Date };
  const timers = new Map();
  let now = 0, last = 0;

  function add(callback, delay, every, given) {
    const id = ++last, call = typeof callback === "function" ? callback : new Function(callback);
    timers.set(id, { at: now + delay, every, run: () => call.apply(window, given) });
    if (delay < AT_ONCE) real.later(() => timers.has(id) && run(id));
    return id;
  }
  const whole = (delay) => Math.max(0, Number(delay) || 0);
  window.setTimeout = (callback, delay, ...given) => add(callback, whole(delay), null, given);
  window.setInterval = (callback, delay, ...given) => {
    const every = Math.max(AT_ONCE, whole(delay));
    return add(callback, every, every, given);
  };
  window.requestAnimationFrame = (callback) => add(() => callback(now), FRAME, null, []);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = (id) => { timers.delete(id); };
  window.performance.now = () => now;
  window.Date = new Proxy(real.Date, {
    construct: (target, given, made) => Reflect.construct(target, given.length ? given : [START + now], made),
    apply: (target) => new target(START + now).toString(),
    get: (target, name) => (name === "now" ? () => START + now : target[name]),
  });

  function run(id) {
    const timer = timers.get(id);
    if (timer.every === null) timers.delete(id);
    else timer.at += timer.every;
    // A page whose own code fails goes on, as it does in a browser.
    try { timer.run(); } catch (error) { console.error(error); }
  }

  async function advance(milliseconds) {
    const end = now + milliseconds;
    for (let count = 0; count < MOST; count++) {
      let next = null;
      for (const [id, timer] of timers) if (timer.at <= end && (next === null || timer.at < timers.get(next).at)) next = id;
      if (next === null) break;
      now = Math.max(now, timers.get(next).at);
      run(next);
      // What the callback promised comes before the next timer.
      await null;
    }
    now = end;
  }

  return { advance };
})();
