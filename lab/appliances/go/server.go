// A web server as Go's own documentation shows it: static files over HTTP/1.1.
// lab/appliances/go/appliance.toml names its place in the guest; a word is another address.
package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	address := ":80"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	log.Fatal(http.ListenAndServe(address, http.FileServer(http.Dir("/srv"))))
}
