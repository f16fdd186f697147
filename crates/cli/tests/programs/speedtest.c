/* SQLite's speedtest1, whose source SPEEDTEST1 names, with a check of what it leaves:
   `speedtest WORDS... DATABASE`. */
#define main speedtest1
#include SPEEDTEST1
#undef main

static int show(void *kept, int columns, char **values, char **names)
{
    printf("%s %s\n", names[0], values[0]);
    return 0;
}

int main(int count, char **words)
{
    const char *path = words[count - 1];
    int status = speedtest1(count, words);
    if (status)
        return status;
    sqlite3 *db;
    if (sqlite3_open(path, &db) != SQLITE_OK)
        return 2;
    if (sqlite3_exec(db, "pragma journal_mode", show, 0, 0) != SQLITE_OK)
        return 3;
    if (sqlite3_exec(db, "select count(*) as tables from sqlite_master where type = 'table'", show,
                     0, 0) != SQLITE_OK)
        return 4;
    return sqlite3_exec(db, "pragma integrity_check", show, 0, 0) == SQLITE_OK ? 0 : 5;
}
