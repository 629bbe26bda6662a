package components

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Value is a variable, a parameter or a value of an event: nil, bool, float64, string, []float64, []string, or map[string][]string.
type Value any

var errValue = errors.New("neither a boolean, a number, a text, a list of numbers or of texts, nor a map of lists of texts")

// valueOf makes a Value of what a reader of JSON or YAML gave.
func valueOf(v any) (Value, error) {
	switch v := v.(type) {
	case nil, bool, float64, string:
		return v, nil
	case int:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	case []any:
		return listOf(v)
	case map[string]any:
		m := make(map[string][]string, len(v))
		for k, list := range v {
			x, err := valueOf(list)
			if err != nil {
				return nil, err
			}
			texts, ok := x.([]string)
			if n, isNumbers := x.([]float64); !ok && (!isNumbers || len(n) > 0) {
				return nil, errValue
			}
			m[k] = texts
		}
		return m, nil
	}
	return nil, errValue
}

// listOf makes a list of numbers, which an empty one is, or of texts.
func listOf(list []any) (Value, error) {
	numbers, texts := make([]float64, 0, len(list)), make([]string, 0, len(list))
	for _, x := range list {
		v, err := valueOf(x)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case float64:
			numbers = append(numbers, v)
		case string:
			texts = append(texts, v)
		}
	}
	switch len(list) {
	case len(numbers):
		return numbers, nil
	case len(texts):
		return texts, nil
	}
	return nil, errValue
}

// parseValue reads a value's JSON text.
func parseValue(text []byte) (Value, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return valueOf(v)
}
