module example.invalid/notes

go 1.19
