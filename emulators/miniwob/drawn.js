// Waits until the pictures of the page's present state are there: one that comes later has no size until then.
window.prillDrawn = async () => {
  // A picture that is missing or broken stays so: the page does without.
  await Promise.all([...document.images].map((picture) => picture.decode().catch(() => null)));
};
