-- The project that every episode starts with. Trac counts times in microseconds.
DELETE FROM component;
INSERT INTO component (name, owner) VALUES ('search', 'ada'), ('export', 'ben'), ('login', 'ada');
INSERT INTO permission VALUES ('anonymous', 'TICKET_ADMIN'), ('anonymous', 'WIKI_ADMIN');
INSERT INTO ticket (id, component, priority, owner, reporter, summary, description) VALUES
  (1, 'export', 'major', 'ben', 'cleo', 'Export loses umlauts', 'The file has question marks.'),
  (2, 'login', 'major', 'ada', 'dan', 'Login page is blank', 'After an update.'),
  (3, 'export', 'minor', 'ben', 'cleo', 'Exprot fails for larg projects', 'It takes a minute.');
UPDATE ticket SET type = 'defect', status = 'new', time = 1700000000000000, changetime = 1700000000000000;
UPDATE wiki SET time = 1700000000000000; -- pages show ages
