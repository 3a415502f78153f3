// Command types prints the table of the API's Go types that the dev server reads
// (src/devserver/types.txt): those of every kind in the table of src/devserver/resource.rs, which
// is the argument, and what they refer to. `make api-types` runs it. The Go types contain more than
// generated.proto does: which messages JSON has inline, and which zeros it leaves out.
package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// What clients send besides the kinds in the table.
var others = []string{
	"v1 DeleteOptions", "v1 Binding", "v1 TypeMeta", "autoscaling/v1 Scale", "policy/v1 Eviction",
	"authorization.k8s.io/v1 SubjectAccessReview", "authentication.k8s.io/v1 TokenReview",
	"authorization.k8s.io/v1 LocalSubjectAccessReview",
	"authorization.k8s.io/v1 SelfSubjectAccessReview",
	"authorization.k8s.io/v1 SelfSubjectRulesReview",
	"authentication.k8s.io/v1 SelfSubjectReview", "authentication.k8s.io/v1 TokenRequest",
}

// Types whose JSON is not that of their fields.
var special = map[string]string{
	"Time": "Time", "MicroTime": "MicroTime", "Duration": "Duration", "Quantity": "Quantity",
	"IntOrString": "IntOrString", "RawExtension": "Raw", "FieldsV1": "Raw", "JSON": "Raw",
	"JSONSchemaPropsOrBool": "SchemaOrBool", "JSONSchemaPropsOrArray": "SchemaOrArray",
	"JSONSchemaPropsOrStringArray": "SchemaOrTexts", "ExtraValue": "Texts", "AttestationValue": "Texts",
}

var (
	names = map[reflect.Type]string{}
	taken = map[string]bool{}
	rows  = map[string]string{}
)

func main() {
	_ = authenticationv1.AddToScheme(scheme.Scheme)
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	table, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	_, text, _ := strings.Cut(string(table), "const TABLE: &str = r#\"\n")
	text, _, _ = strings.Cut(text, "\n\"#;")
	kinds := others
	for _, line := range regexp.MustCompile(`(?m)^\w+ (\S+ \w+)`).FindAllStringSubmatch(text, -1) {
		kinds = append(kinds, line[1])
	}
	// All kinds have their names before a field can take one.
	var types []reflect.Type
	for _, kind := range kinds {
		version, name, _ := strings.Cut(kind, " ")
		group, err := schema.ParseGroupVersion(version)
		if err != nil {
			panic(err)
		}
		if name == "TypeMeta" {
			continue
		}
		object, err := scheme.Scheme.New(group.WithKind(name))
		if err != nil {
			panic(err)
		}
		types = append(types, reflect.TypeOf(object).Elem())
		name_of(types[len(types)-1])
	}
	for _, of := range types {
		add(of)
	}
	var sorted []string
	for name := range rows {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	for _, name := range sorted {
		fmt.Println(wrap(name + rows[name]))
	}
}

// The name in the table: that in Go, with group and version if it is not v1 or not the only one.
func name_of(of reflect.Type) string {
	if name, known := names[of]; known {
		return name
	}
	path := strings.Split(of.PkgPath(), "/")
	name, version := of.Name(), path[len(path)-1]
	if taken[name] || version != "v1" {
		name = path[len(path)-2] + "." + version + "." + name
	}
	if taken[name] {
		panic(name)
	}
	names[of], taken[name] = name, true
	return name
}

func add(of reflect.Type) string {
	name := name_of(of)
	if _, known := rows[name]; known {
		return name
	}
	rows[name] = ""
	var row strings.Builder
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Name == "TypeMeta" {
			row.WriteString(" kind apiVersion")
			continue
		}
		json := strings.Split(field.Tag.Get("json"), ",")
		proto := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(proto) < 2 || json[0] == "-" {
			continue
		}
		kind, is_pointer := type_of(field.Type)
		is_kept := is_pointer || !strings.Contains(field.Tag.Get("json"), ",omit")
		row.WriteString(" " + json[0] + "=" + proto[1])
		if kind != "string" {
			row.WriteString(":" + kind)
		}
		// Go writes a struct although its fields are empty.
		_, is_struct := rows[kind]
		if is_kept && !is_struct && !strings.ContainsAny(kind, "[]") {
			row.WriteString("!")
		}
	}
	rows[name] = row.String()
	return name
}

// The type in the table, and whether Go distinguishes its zero value from its absence.
func type_of(of reflect.Type) (string, bool) {
	if kind, known := special[of.Name()]; known && of.Kind() != reflect.Pointer {
		return kind, false
	}
	switch of.Kind() {
	case reflect.Pointer:
		kind, _ := type_of(of.Elem())
		return kind, true
	case reflect.Struct:
		return add(of), false
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes", false
		}
		kind, _ := type_of(of.Elem())
		return "[]" + kind, false
	case reflect.Map:
		kind, _ := type_of(of.Elem())
		return "map[" + kind + "]", false
	case reflect.Int, reflect.Int64:
		return "int64", false
	default:
		return of.Kind().String(), false
	}
}

// A type in lines of 100 columns at most.
func wrap(row string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(row) {
		if line != "" && len(line)+1+len(word) > 100 {
			lines, line = append(lines, line), " "
		} else if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
