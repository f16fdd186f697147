// A web server as Go's own documentation shows it: static files over HTTP/1.1.
// lab/appliances/go/appliance.toml names its place in the guest.
package main

import (
	"log"
	"net/http"
)

func main() {
	log.Fatal(http.ListenAndServe(":80", http.FileServer(http.Dir("/srv"))))
}
