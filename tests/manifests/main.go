// Decodes Kubernetes manifests strictly: each document of the files named as arguments into the published type of its
// kind. A field that the type does not have, one that is given twice and a value of a wrong type are faults, which are
// printed on standard error as FILE: NUMBER: FAULT, and make the exit status 1. Each good document is printed as a line
// of JSON, as it was given.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	lwsv1 "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/yaml"
)

// The kinds that the manifests may have, by apiVersion and kind.
var kinds = map[string]func() v1.Object{
	"apps/v1/Deployment":       func() v1.Object { return &appsv1.Deployment{} },
	"v1/ConfigMap":             func() v1.Object { return &corev1.ConfigMap{} },
	"v1/PersistentVolumeClaim": func() v1.Object { return &corev1.PersistentVolumeClaim{} },
	"v1/Service":               func() v1.Object { return &corev1.Service{} },
	"leaderworkerset.x-k8s.io/v1/LeaderWorkerSet": func() v1.Object { return &lwsv1.LeaderWorkerSet{} },
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		failed = !decodeFile(path) || failed
	}
	if failed {
		os.Exit(1)
	}
}

// decodeFile prints what the file has; false if anything of it is wrong.
func decodeFile(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	defer file.Close()
	good := true
	reader := utilyaml.NewYAMLReader(bufio.NewReader(file))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %d: %v\n", path, number, err)
			return false
		}
		json, err := decode(document)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %d: %v\n", path, number, err)
			good = false
			continue
		}
		fmt.Printf("%s\n", json)
	}
	return good
}

// decode returns a document as JSON.
func decode(document []byte) ([]byte, error) {
	var header v1.TypeMeta
	if err := yaml.Unmarshal(document, &header); err != nil {
		return nil, err
	}
	build, known := kinds[header.APIVersion+"/"+header.Kind]
	if !known {
		return nil, fmt.Errorf("apiVersion %q, kind %q: no type that is known here", header.APIVersion, header.Kind)
	}
	object := build()
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return nil, err
	}
	if object.GetName() == "" {
		return nil, fmt.Errorf("%s without a name", header.Kind)
	}
	return yaml.YAMLToJSON(document)
}
