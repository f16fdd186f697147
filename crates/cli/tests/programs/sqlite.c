/* A database on a disk: `sqlite JOURNAL` checks it, says what it has, and commits rows until it is
   killed; each commit is printed when SQLite has made it durable. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static sqlite3 *db;

static int show(void *kept, int columns, char **values, char **names)
{
    printf("%s %s\n", names[0], values[0] ? values[0] : "0");
    return 0;
}

static void run(const char *text)
{
    char *error = 0;
    if (sqlite3_exec(db, text, show, 0, &error) != SQLITE_OK) {
        printf("%s: %s\n", text, error);
        exit(1);
    }
}

int main(int count, char **words)
{
    char text[200];
    if (sqlite3_open("/data/test.db", &db) != SQLITE_OK)
        return 1;
    snprintf(text, sizeof text, "pragma journal_mode=%s", words[1]);
    run(text);
    /* With "full" the last commit of a rollback journal may be undone: its end is the journal's
       unlink, which is not synced. */
    run("pragma synchronous=extra");
    run("pragma integrity_check");
    run("create table if not exists t (n integer primary key, text)");
    run("select count(*) as rows from t");
    run("select max(n) as last from t");
    fflush(stdout);
    sqlite3_stmt *last;
    sqlite3_prepare_v2(db, "select ifnull(max(n), 0) from t", -1, &last, 0);
    sqlite3_step(last);
    long n = sqlite3_column_int64(last, 0);
    sqlite3_finalize(last);
    for (;;) {
        n++;
        snprintf(text, sizeof text, "insert into t values (%ld, hex(randomblob(%ld)))", n,
                 100 + n * 37 % 3000);
        run(text);
        printf("committed %ld\n", n);
        fflush(stdout);
    }
}
